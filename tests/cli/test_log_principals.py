"""`callgate log` says on whose behalf each call was made, and selects calls by it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from callgate import Engine, EventQuery, RawCall, Scope, SqliteJournal, tool
from callgate.recorded_calls import find_tool_calls
from tests.cli.shell import command, environment
from tests.cli.shell import shell as said
from tests.waiting import COMMAND_S


@tool(effect="none")
async def look(order: str) -> str:
    """Look an order up."""
    return order


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    async with Engine([look], journal=SqliteJournal(tmp_path / ".callgate" / "journal.db")) as engine:
        for number, principal in enumerate(("alice", "bob", "alice", "")):
            await engine.call(RawCall(name="look", arguments={"order": f"A{number}"}), Scope(run=f"r{number}", principal=principal))
        await engine.call(RawCall(name="look", arguments={}), Scope(run="bad", principal="bob"))
    return tmp_path


def runs(out: str) -> list[str]:
    return [json.loads(line)["run"] for line in out.splitlines()]


def test_the_list_names_the_principal_of_each_call(folder: Path) -> None:
    rows = [json.loads(line) for line in said(folder, "log", "list", "--json").out.splitlines()]
    assert [row["principal"] for row in rows] == ["alice", "bob", "alice", "", "bob"]
    header, first, *_ = said(folder, "log", "list").out.splitlines()
    assert header.split()[:4] == ["time", "call", "tool", "principal"]
    assert "alice" in first


def test_a_list_of_calls_without_principals_has_no_column_for_them(folder: Path) -> None:
    assert "principal" not in said(folder, "log", "list", "--run", "r3").out


def test_a_principal_selects_calls_statistics_and_events(folder: Path) -> None:
    assert runs(said(folder, "log", "list", "--principal", "alice", "--json").out) == ["r0", "r2"]
    assert runs(said(folder, "log", "list", "--principal", "alice", "--json", "--limit", "1").out) == ["r2"]
    assert runs(said(folder, "log", "list", "--principal", "bob", "--field", "status=error", "--json").out) == ["bad"]
    assert json.loads(said(folder, "log", "stats", "--principal", "bob", "--json").out)["calls"] == 2
    exported = said(folder, "log", "export", "--principal", "bob").out
    assert set(runs(exported)) == {"r1", "bad"}
    assert runs(said(folder, "log", "export", "--principal", "bob", "--limit", "2").out) == runs(exported)[:2]


def test_a_principal_without_calls_is_answered_with_those_that_have_some(folder: Path) -> None:
    answer = " ".join(said(folder, "log", "list", "--principal", "alise").err.split())
    assert answer == "No recent call was made on behalf of 'alise'. Did you mean alice? There are: alice, bob."


def test_a_field_of_the_scope_is_named_with_its_path(folder: Path) -> None:
    answer = " ".join(said(folder, "log", "list", "--field", "principal=alice").err.split())
    assert answer == "None of the latest events has a field 'principal'. Use --field scope.principal=..."
    assert runs(said(folder, "log", "list", "--field", "scope.principal=alice", "--json").out) == ["r0", "r2"]


def test_new_events_of_one_principal_are_followed(folder: Path) -> None:
    words = command(("log", "follow", "--after", "0", "--principal", "bob", "--kind", "call.received", "--json"))
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stdout is not None
        assert [json.loads(running.stdout.readline())["run"] for _ in range(2)] == ["r1", "bad"]
        running.send_signal(signal.SIGINT)
        rest, _ = running.communicate(timeout=COMMAND_S)
    assert (rest, running.returncode) == ("", 0)


async def test_the_entries_of_calls_name_the_principal(folder: Path) -> None:
    async with Engine([look], journal=SqliteJournal(folder / ".callgate" / "journal.db")) as engine:
        found = find_tool_calls(engine.journal, EventQuery(principal="bob"))
    assert [(entry.run, entry.principal) for entry in found] == [("r1", "bob"), ("bad", "bob")]
