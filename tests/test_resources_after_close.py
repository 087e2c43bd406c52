"""Closed objects hold no open file, no thread, and no timer of the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from callgate import Engine, SqliteJournal, tool
from callgate._journal import open_reader
from callgate.event_queries import EventQuery
from tests.engine_calls import call, said
from tests.waiting import threads_since

if not os.path.isdir("/proc/self/fd"):
    pytest.skip("the open files of a process are read from /proc", allow_module_level=True)


def open_files(folder: Path) -> Counter[str]:
    """Return the files below this folder that this process has open."""
    held: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            place = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        if place.startswith(str(folder)):
            held[place] += 1
    return held


@tool(effect="none")
def look() -> str:
    """Return a result that is read off the event loop."""
    return "x" * 2_000_000


@tool(effect="once")
async def act() -> str:
    """Act."""
    return "done"


async def test_a_closed_engine_holds_no_file_thread_or_timer(tmp_path: Path) -> None:
    before, loop = set(threading.enumerate()), asyncio.get_running_loop()
    timers = set(loop._scheduled)  # type: ignore[attr-defined]
    async with Engine([look, act], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        assert [(await said(engine, call(name))).status for name in ("look", "act")] == ["ok", "ok"]
        assert open_files(tmp_path)
    await asyncio.sleep(0)
    assert not open_files(tmp_path)
    assert not threads_since(before)
    assert not [timer for timer in set(loop._scheduled) - timers if not timer.cancelled()]  # type: ignore[attr-defined]


async def test_closed_readers_do_not_accumulate_open_files(tmp_path: Path) -> None:
    """SQLite itself keeps one file open for its next connection while another connection of the process holds a lock on it."""
    async with Engine([act], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        await said(engine, call("act"))
        held = []
        for _ in range(4):
            reader = open_reader(tmp_path / "journal.db")
            assert len(list(reader.find(EventQuery()))) > 0
            reader.close()
            held.append(open_files(tmp_path))
        assert held[1:] == held[:-1]
        await said(engine, call("act"))
    assert not open_files(tmp_path)
