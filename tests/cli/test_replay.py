"""`callgate replay`: the real command on a journal of the real command. It starts no tool, and its exit code reports the result."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from callgate.testing import Call, Item, ScriptedServer
from tests.cli.shell import Ended, pytest_of, shell
from tests.waiting import COMMAND_S

CRM = ("--tools", "crm.py")
PAYS: list[list[Item]] = [["I pay.", Call("refund", {"order": "A7", "cents": 12}), Call("odd_text", {})], ["Paid."]]
OTHER = [*PAYS[:1], ["It is paid, as you wished."]]
ELSE: list[list[Item]] = [["I pay more.", Call("refund", {"order": "A7", "cents": 13}), Call("odd_text", {})]]


async def played(folder: Path, turns: Iterable[list[Item]], *words: str) -> Ended:
    """Run a command with a provider that plays these turns."""
    async with ScriptedServer([*turns]) as server:
        return await asyncio.to_thread(shell, folder, *words, "--model", "any", "--base-url", server.url, *CRM)


@pytest.fixture
def recorded(folder: Path) -> Path:
    """Return a folder with one recorded run; its one payment is in the ledger."""
    done = asyncio.run(played(folder, PAYS, "run", "Pay.", "--yes"))
    assert (done.code, paid(folder)) == (0, ["A7 12"])
    return folder


def paid(folder: Path) -> list[str]:
    return (folder / "paid.txt").read_text().splitlines()


def test_replay_reconstructs_a_run_from_its_journal_and_starts_no_tool(recorded: Path) -> None:
    made = shell(recorded, "replay", "last", "--json")
    assert (made.code, made.json["same"], made.json["gaps"]) == (0, True, [])
    assert [(call["tool"], call["decided"]["word"], call["ended"]) for call in made.json["calls"]] == [
        ("refund", "allow", "ok"),
        ("odd_text", "allow", "ok"),
    ]
    assert [message["role"] for message in made.json["messages"]] == ["user", "assistant", "tool", "tool", "assistant"]
    told = shell(recorded, "replay", made.json["run"])
    assert "made again from the record alone" in told.err
    assert "\x1b" not in told.out
    assert paid(recorded) == ["A7 12"]


def test_replay_with_another_policy_shows_calls_it_would_decide_differently(recorded: Path) -> None:
    (recorded / "open.toml").write_text("", encoding="utf-8")
    assert shell(recorded, "replay", "last", "--policy", "open.toml", *CRM).code == 0
    judged = shell(recorded, "replay", "last", "--policy", "rules.toml", *CRM, "--json")
    assert (judged.code, judged.json["differs"]) == (6, True)
    now: list[Any] = [(call["now"]["word"], call["now"]["rule"], call["differs"]) for call in judged.json["calls"]]
    assert now == [("ask", "ask-first (rules.toml:2)", True), ("deny", "no-odd-text (rules.toml:8)", True)]
    told = shell(recorded, "replay", "last", "--policy", "rules.toml", *CRM)
    assert "no-odd-text (rules.toml:8)" in told.out
    assert "would have waited for a human here" in told.err
    assert paid(recorded) == ["A7 12"]


def test_replay_with_changed_tools_shows_calls_that_would_be_refused(recorded: Path) -> None:
    source = (recorded / "crm.py").read_text(encoding="utf-8")
    (recorded / "crm.py").write_text(source.replace("cents: int", "euros: float"), encoding="utf-8")
    judged = shell(recorded, "replay", "last", *CRM, "--json")
    assert (judged.code, judged.json["changed_tools"]) == (6, ["refund"])
    assert [(call["now"]["word"], call["now"]["code"]) for call in judged.json["calls"]] == [("refused", "schema_invalid"), ("allow", "")]


@pytest.mark.parametrize(("turns", "code", "ended"), [(OTHER, 0, ""), (ELSE, 6, "or with other arguments")])
def test_replay_with_another_model_starts_none_of_its_calls(turns: list[list[Item]], code: int, ended: str, recorded: Path) -> None:
    asked = asyncio.run(played(recorded, turns, "replay", "last", "--json"))
    assert asked.code == code
    assert ended in asked.json["ended"]
    assert paid(recorded) == ["A7 12"]


def test_replay_fails_for_a_modified_journal(recorded: Path) -> None:
    from tests.replay.test_rebuild_run import changed

    changed(recorded / ".callgate" / "journal.db", "call.completed", "paid 12", "paid 99")
    made = shell(recorded, "replay", "last", "--policy", "rules.toml", *CRM)
    assert made.code == 1
    assert "what the model was shown in pass 2" in made.err


def test_an_unreachable_model_is_a_failure_and_not_a_difference(recorded: Path) -> None:
    asked = shell(recorded, "replay", "last", "--model", "any", "--base-url", "http://127.0.0.1:9/v1", *CRM)
    assert asked.code == 1
    assert "could not be asked in pass 1" in asked.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nobody"], "No run 'nobody' is on record here"),
        (["last", "--policy", "none.toml", *CRM], "none.toml cannot be read"),
        (["last", "--policy", "rules.toml"], "called odd_text, refund"),
        (["last", "--model", "x", "--policy", "rules.toml"], "cannot be combined"),
        (["last", "--base-url", "http://localhost"], "needs --model"),
        (["last", "--export", "test_x.py", "--model", "x"], "cannot be combined"),
        (["last", "--export", "test_x.txt", *CRM], "not a Python file"),
        (["last", "--export", "nowhere/test_x.py", *CRM], "cannot be written"),
        (["last", "--export", "crm.py", *CRM], "exists and was not overwritten"),
        (["last", "--journal", "nowhere.db"], "no journal at nowhere.db"),
        (["last", "--tools", "none.py"], "no file none.py"),
        (["last", "--model", "nobody:x", *CRM], "No provider is called 'nobody'"),
    ],
)
def test_an_invalid_replay_command_is_refused_with_the_next_step(words: list[str], told: str, recorded: Path) -> None:
    done = shell(recorded, "replay", *words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert not (recorded / "nowhere.db").exists()


def test_calls_made_with_callgate_call_can_be_replayed_as_a_run(folder: Path) -> None:
    shell(folder, "call", "refund", "order=A7", "cents=5", *CRM, "--run", "case-7")
    judged = shell(folder, "replay", "case-7", "--policy", "rules.toml", *CRM)
    assert judged.code == 6
    assert "the host's own loop" in judged.err


def test_an_exported_test_fails_if_the_behaviour_differs_from_the_run(recorded: Path) -> None:
    """Any run can be exported as a test: it uses the current rules, tools and loop, and runs no tool."""
    (recorded / "tests").mkdir()
    (recorded / "open.toml").write_text("# nothing is forbidden\n", encoding="utf-8")
    words = ("replay", "last", "--export", "tests/test_paid.py", "--policy", "open.toml", *CRM)
    done = shell(recorded, *words, "--json")
    assert (done.code, done.json["passes"], done.json["differences"]) == (0, True, [])
    assert pytest_of(recorded, "tests")[0] == 0
    assert paid(recorded) == ["A7 12"]
    assert shell(recorded, *words).code == 2
    (recorded / "open.toml").write_text('default = "deny"\n', encoding="utf-8")
    code, shown = pytest_of(recorded, "tests")
    assert code == 1
    assert "Call 0/0 of refund: verdict: allow" in shown
    source = (recorded / "crm.py").read_text(encoding="utf-8")
    (recorded / "open.toml").write_text("", encoding="utf-8")
    (recorded / "crm.py").write_text(source.replace("cents: int", "cents: list[int]"), encoding="utf-8")
    assert pytest_of(recorded, "tests")[0] == 1
    assert paid(recorded) == ["A7 12"]


def test_an_exported_test_passes_the_linter_and_formatter(recorded: Path) -> None:
    shell(recorded, "replay", "last", "--export", "test_paid.py", "--policy", "rules.toml", *CRM)
    for words in (["check", "--select", "E,F,I,W,UP,B"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", words[0], "--isolated", *words[1:], "test_paid.py"],
            cwd=recorded,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )
        assert done.returncode == 0, done.stdout


def test_exporting_a_test_that_does_not_pass_is_reported(recorded: Path) -> None:
    """Otherwise a user could keep a test that never passed."""
    done = shell(recorded, "replay", "last", "--export", "test_paid.py", "--policy", "rules.toml", *CRM)
    assert done.code == 6
    assert "Are they the ones that the run had?" in done.err


async def test_the_exported_test_of_a_run_without_rules_uses_the_default_policy(folder: Path) -> None:
    """The test includes the approvals that were asked at the terminal, with their answers."""
    await played(folder, [PAYS[0]], "run", "Pay.")
    made = await asyncio.to_thread(shell, folder, "replay", "last", "--json")
    question = next(call["call"] for call in made.json["calls"] if call["decided"]["word"] == "ask")
    resumed = await played(folder, [PAYS[1]], "resume", made.json["run"], "--allow", question)
    assert (resumed.code, paid(folder)) == (0, ["A7 12"])
    done = await asyncio.to_thread(shell, folder, "replay", "last", "--export", "test_paid.py", *CRM)
    assert (done.code, "It passes." in done.err) == (0, True)
    assert "policies=[careful()]" in (folder / "test_paid.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("cents", ["12", "many"], ids=["asked", "refused"])
def test_rejudging_a_run_whose_calls_never_started_requires_its_tools(folder: Path, cents: str) -> None:
    """Without the tools every call would differ, only because its tool is unknown."""
    shell(folder, "call", "refund", "order=A7", f"cents={cents}", *CRM, "--policy", "rules.toml", "--run", "case-7")
    done = shell(folder, "replay", "case-7", "--policy", "rules.toml")
    assert (done.code, done.out) == (2, "")
    assert "called refund" in done.err
    assert "--tools" in done.err
    assert shell(folder, "replay", "case-7", "--policy", "rules.toml", *CRM).code == 0
