"""Hostile text in every column of every listing: it never controls the terminal, and never adds a line of its own.

Users decide by what a listing shows. The text enters where others can write it: names, ids, arguments, approvals, results, paths,
holders of leases, kinds and bodies of events.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import unicodedata
from pathlib import Path
from typing import Any

import apsw
import pytest

from callgate import Allow, Ask, Deny, Engine, RawCall, Scope, SqliteJournal, ToolContext, tool
from callgate.agent import Agent
from callgate.memory import Memory
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from callgate.undo import UndoHistory, UndoStore
from tests.agent.scripted_model import Script, call, says
from tests.cli.shell import shell

HOSTILE = (
    "\x1b[31mred\x1b]0;title\x07 \x9b2J\x85 \r\nFORGED line\nFORGED \u202egnp \u2066 \u200b\ufeff"
    " \u2028FORGED\u2029 \U000e0041 \x00\x7f\x08"
)
SURROGATE = f"{HOSTILE} \ud83d"
FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Odd:
    """A policy whose reasons contain hostile text."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        if call.tool.name == "pay":
            return Ask(question=f"Pay {HOSTILE}?", rule=HOSTILE)
        return Deny(reason=HOSTILE, rule=HOSTILE) if call.tool.name == "look" else Allow(rule=HOSTILE)


async def _worked(folder: Path) -> None:
    @tool(effect="once")
    async def pay(to: str) -> str:
        """Pay."""
        return to

    @tool(effect="none")
    async def look(what: str) -> str:
        """Look."""
        return what

    @tool(effect="none")
    async def fail(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    @tool(effect="once")
    async def touch(context: ToolContext) -> str:
        """Make a file with a hostile name."""
        work = Path(context.scope.workspace)
        await asyncio.to_thread((work / "odd\x1b[31m\u202e\nFORGED.txt").write_text, HOSTILE)
        return "made"

    memory = Memory(folder / "memory.db")
    journal = SqliteJournal(folder / "journal.db")
    undo_store = UndoStore(folder / "kept")
    tools = [pay, look, fail, touch]
    async with Engine(tools, policies=[Odd()], journal=journal, memory=memory, undo=undo_store) as engine:
        calls = [
            call("pay", {"to": HOSTILE}, id=HOSTILE),
            call("look", {"what": SURROGATE}, id="2", position=1),
            call("fail", {"why": SURROGATE}, id="3", position=2),
            call(SURROGATE, {HOSTILE: SURROGATE}, id="4", position=3),
            call("touch", id="5", position=4),
        ]
        scope = Scope(run=f"run{HOSTILE}", actor=HOSTILE, principal="", workspace=str(folder / "work"))
        agent = Agent(Script(says(HOSTILE, *calls)), engine)
        result = await agent.run(f"Go. {HOSTILE}", scope=scope, conversation=f"talk{HOSTILE}")
        assert result.status == "waiting", [(one.name, one.code, one.error) for one in result.results]
        await engine.call(RawCall(name="fail", arguments={"why": f"zebra {HOSTILE}"}, id="z"), Scope(run="plain"))
        memory.remember(f"A zebra. {HOSTILE}")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "work").mkdir()
    asyncio.run(_worked(folder))
    UndoHistory(folder / "work", place=folder / "kept").checkpoint("zebra")
    with sqlite3.connect(folder / "journal.db") as database:
        database.execute("UPDATE events SET kind = kind || ? WHERE position = 2", (HOSTILE.replace("\x00", ""),))
        run, epoch = database.execute("SELECT run, 1 FROM events WHERE kind = 'call.suspended'").fetchone()
        row = (run, epoch, 99, f"process {HOSTILE}", 9_000_000_000_000_000_000)
        database.execute("INSERT OR REPLACE INTO leases (run, epoch, holder, who, expires_ns) VALUES (?, ?, ?, ?, ?)", row)
    database.close()
    return folder


JOURNAL = ("--journal", "journal.db")
MEMORY = ("--memory", "memory.db")
UNDO = ("--workspace", "work")
LISTINGS: dict[str, tuple[str, ...]] = {
    "approvals": ("approvals", *JOURNAL),
    "log list": ("log", "list", *JOURNAL),
    "log show": ("log", "show", "RUN", *JOURNAL),
    "log tree": ("log", "tree", "RUN", *JOURNAL),
    "log stats": ("log", "stats", *JOURNAL),
    "log verify": ("log", "verify", *JOURNAL),
    "log export": ("log", "export", *JOURNAL),
    "replay": ("replay", "RUN", *JOURNAL),
    "memory search": ("memory", "search", "zebra", *MEMORY),
    "memory status": ("memory", "status", *MEMORY),
    "undo": ("undo", *UNDO),
    "undo of one": ("undo", "last", "--dry-run", *UNDO, *JOURNAL),
    "diff": ("diff", "last", *UNDO),
    "checkpoint list": ("checkpoint", "list", *UNDO),
    "tools": ("tools", "list", "--tools", "odd.py"),
    "one tool": ("tools", "show", "bad", "--tools", "odd.py"),
}
WHOLE_TEXTS = {"diff", "one tool"}
"""Listings that show a text on all its lines, unchanged."""
ODD_TOOLS = f"""
from callgate import tool

def bad(x: str) -> str:
    return x

bad.__doc__ = {HOSTILE!r}
bad = tool(effect="none")(bad)
"""


def hidden(text: str) -> list[str]:
    """Return the characters that control a terminal, are invisible, or reorder text."""
    return [repr(char) for char in text if char not in "\n\t" and unicodedata.category(char) in FORBIDDEN]


@pytest.mark.parametrize("as_json", [False, True], ids=["table", "json"])
@pytest.mark.parametrize("listing", LISTINGS)
def test_no_listing_writes_hostile_text_to_the_terminal(hostile: Path, listing: str, as_json: bool) -> None:
    (hostile / "odd.py").write_text(ODD_TOOLS, encoding="utf-8")
    with sqlite3.connect(hostile / "journal.db") as database:
        (run,) = database.execute("SELECT run FROM events WHERE kind = 'call.suspended'").fetchone()
    database.close()
    assert "\x1b" in run or not hidden(run)
    words = [word.replace("RUN", run if not hidden(run) else "plain") for word in LISTINGS[listing]]
    more: tuple[str, ...] = ("--json",) if as_json and listing != "log export" else ()
    done = shell(hostile, *words, *more, CALLGATE_UNDO=str(hostile / "kept"), COLUMNS="400")
    assert done.out + done.err, "the listing is empty"
    assert done.code in (0, 1), done.err
    assert hidden(done.out) + hidden(done.err) == []
    assert listing in WHOLE_TEXTS or not [line for line in (done.out + done.err).splitlines() if line.lstrip(" \"'").startswith("FORGED")]
    if as_json or listing == "log export":
        for line in done.out.splitlines():
            json.loads(line)


def test_the_fixture_has_hostile_text_in_every_listing(hostile: Path) -> None:
    """Without hostile text in a listing, the test above would pass for no reason. Each listing with rows must show an escape."""
    shown: dict[str, Any] = {}
    for listing in ("approvals", "log list", "log stats", "memory search", "undo"):
        done = shell(hostile, *LISTINGS[listing], CALLGATE_UNDO=str(hostile / "kept"), COLUMNS="400")
        shown[listing] = "\\x1b" in done.out
    assert shown == dict.fromkeys(shown, True)
    assert os.listdir(hostile / "work")


async def test_the_lease_holder_in_the_list_of_approvals_is_escaped(hostile: Path) -> None:
    """The name of the holder was written to the journal by another engine."""
    path = hostile / "journal.db"
    with apsw.Connection(str(path)) as database:
        run = str(database.execute("SELECT run FROM events WHERE kind = 'call.suspended'").get)
        database.execute("DELETE FROM leases")
    journal = SqliteJournal(path)
    await journal.acquire_lease(run)
    with apsw.Connection(str(path)) as database:
        database.execute("UPDATE leases SET who = ?", (f"process {HOSTILE}".replace("\x00", ""),))
    done = await asyncio.to_thread(shell, hostile, *LISTINGS["approvals"], COLUMNS="600")
    await journal.close()
    assert hidden(done.out) == []
    assert "process \\x1b[31mred" in done.out
    assert not [line for line in done.out.splitlines() if line.lstrip().startswith("FORGED")]
