"""`last` names the newest run in every command that takes a run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from callgate.cli._app import app
from callgate.testing import Call, Fail, ScriptedServer
from tests.cli.run_process import CRM, DONE, PAYS, ran
from tests.cli.runs import ended
from tests.cli.shell import Ended, shell

NAMES_A_RUN = {
    "call --run",
    "diff WHAT",
    "kill RUN",
    "log export --run",
    "log follow --run",
    "log list --run",
    "log result ID",
    "log show --run",
    "log show ID",
    "log stats --run",
    "log tree ID",
    "memory search --run",
    "redo WHAT",
    "replay RUN",
    "resume RUN",
    "stop RUN",
    "undo WHAT",
}
"""Every argument and option that names a run."""


def run_parameters(root: App, path: str = "") -> Iterator[str]:
    """Yield the arguments and `--run` options of every command that can name a run."""
    for name in root:
        if name.startswith("-"):
            continue
        command, words = root[name], f"{path}{name}"
        if command.default_command is None:
            yield from run_parameters(command, f"{words} ")
            continue
        for argument in command.assemble_argument_collection():
            if "--run" in argument.names:
                yield f"{words} --run"
            elif argument.parameter.name and argument.field_info.kind is inspect.Parameter.POSITIONAL_ONLY:
                shown = argument.names[0].lstrip("-").upper()
                if shown in ("RUN", "ID", "WHAT"):
                    yield f"{words} {shown}"


def test_every_command_that_takes_a_run_is_tested_here() -> None:
    assert set(run_parameters(app)) == NAMES_A_RUN


@pytest.fixture
async def two_runs(folder: Path) -> str:
    """Make two runs of an agent in a folder; return the id of the newer one, whose call wrote a file and whose model failed."""
    await ran(folder, [PAYS, DONE], *CRM, "--yes")
    failing = [Call("write_file", {"path": "new.txt", "content": "new"})], [Fail("invalid_request", "no")]
    done = await ran(folder, failing, "--yes", "--json")
    assert done.lines[-1]["status"] == "failed"
    return str(done.lines[-1]["run"])


async def test_last_names_the_newest_run_in_every_command_that_takes_a_run(folder: Path, two_runs: str) -> None:
    async def told(*words: str) -> Ended:
        done = await ended(folder, *words)
        assert done.code == 0, (words, done.err)
        return done

    for words in (("log", "show", "last"), ("log", "tree", "last"), ("log", "export", "--run", "last"), ("log", "list", "--run", "last")):
        lines = (await told(*words, *(() if "export" in words else ("--json",)))).lines
        assert lines, words
        assert {line["run"] for line in lines} == {two_runs}, words
    assert (await told("log", "stats", "--run", "last", "--json")).json["calls"] == 1
    assert (await told("log", "show", "last", "--run", "last")).code == 0
    assert "new.txt" in (await told("log", "result", "last")).out
    assert (await told("replay", "last", "--json")).json["run"] == two_runs
    assert "+new" in (await told("diff", "last")).out
    assert (await told("undo", "last", "--json")).json["runs"] == [two_runs]
    assert (await told("redo", "last", "--json")).json["runs"] == [two_runs]
    for command in ("stop", "kill"):
        assert two_runs in (await ended(folder, command, "last")).err
    async with ScriptedServer(["Done."]) as server:
        assert (await told("resume", "last", "--base-url", server.url, "--json")).lines[0]["run"] == two_runs
    await told("call", "odd_text", *CRM, "--run", "last")
    assert {line["run"] for line in (await told("log", "list", "--json")).lines[-1:]} == {two_runs}


def test_last_is_refused_if_there_is_no_journal(folder: Path) -> None:
    for words in (
        ("log", "show", "last"),
        ("resume", "last"),
        ("replay", "last"),
        ("stop", "last"),
        ("call", "odd_text", *CRM, "--run", "last"),
    ):
        done = shell(folder, *words)
        assert done.code == 2, words
        assert "There is no journal at .callgate/journal.db." in done.err
