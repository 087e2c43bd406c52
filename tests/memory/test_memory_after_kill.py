"""Tests of a process that is killed while it writes to its memory: the next process ends with the same content."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from callgate import Engine, SqliteJournal
from callgate.builtins import workspace_tools
from callgate.memory import Memory, PassageQuery
from tests.cli.shell import environment
from tests.waiting import COMMAND_S

SCRIPT = """
import asyncio, os, sys
from callgate import Engine, RawCall, Scope, SqliteJournal
from callgate.builtins import workspace_tools
from callgate.memory import Memory

async def main(folder, last):
    memory = Memory(f"{folder}/m.db")
    async with Engine([*workspace_tools(), *memory.tools()], journal=SqliteJournal(f"{folder}/j.db"), memory=memory) as engine:
        scope = Scope(run="r1", workspace=f"{folder}/work", principal="ann")
        for number in range(last + 1):
            for name, arguments in [
                ("write_file", {"path": f"{number}.txt", "content": f"zebra {number}"}),
                ("remember", {"text": f"zebra note {number}"}),
            ]:
                await engine.call(RawCall(name=name, arguments=arguments), scope)
        os.kill(os.getpid(), 9)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def remembered(folder: Path, name: str) -> set[tuple[str, str, str]]:
    memory = Memory(folder / name)
    async with Engine(workspace_tools(), journal=SqliteJournal(folder / "j.db"), memory=memory):
        assert await memory.settled()
        found = memory.search(PassageQuery(text="zebra", principal="ann", limit=50))
        return {(one.passage.kind, one.passage.text, one.passage.call) for one in found}


@pytest.mark.process
@pytest.mark.parametrize("last", [0, 1, 5])
async def test_a_killed_process_loses_no_remembered_note_call_or_file(tmp_path: Path, last: int) -> None:
    """The interrupted memory ends with the same notes, calls and files as a memory that is built from the journal."""
    (tmp_path / "work").mkdir()
    words = [sys.executable, "-c", SCRIPT, str(tmp_path), str(last)]
    done = subprocess.run(words, env=environment(), timeout=COMMAND_S, capture_output=True, text=True)  # noqa: ASYNC221
    assert done.returncode == -signal.SIGKILL, done.stderr
    with Memory(tmp_path / "m.db") as cut_off:
        assert cut_off.status().notes == last + 1  # before the journal is read
    after, anew = await remembered(tmp_path, "m.db"), await remembered(tmp_path, "anew.db")
    assert after == anew
    assert len(after) == 3 * (last + 1)
