"""Forked processes: an engine works only in the process that made it, and raises in a child."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S

REFUSAL = "This engine was made before this process was forked, and cannot work in it. Make a new one here, and its journal."
SCRIPT = """
import os
from callgate import Engine, RawCall, UsageError, tool

@tool(effect="none")
async def look() -> str:
    "Look."
    return "seen"

engine = Engine([look])
print(engine.call_sync(RawCall(name="look", arguments="{}")).result.text, flush=True)
child = os.fork()
if not child:
    for use in (lambda: engine.call_sync(RawCall(name="look", arguments="{}")), engine.close_sync):
        try:
            use()
        except UsageError as error:
            os.write(1, f"{error}\\n".encode())
    os._exit(0)
os.waitpid(child, 0)
print(engine.call_sync(RawCall(name="look", arguments="{}")).result.text)
engine.close_sync()
"""


def test_an_engine_is_refused_in_a_forked_child_and_still_works_in_the_parent() -> None:
    """A fork does not copy the engine's thread, so a call in the child would otherwise wait forever."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.stdout.splitlines() == ["seen", REFUSAL, REFUSAL, "seen"], ran.stderr


SHARED = """
import os, sys
from callgate import Engine, RawCall, SqliteJournal, UsageError, tool

@tool
def pay(n: int) -> str:
    "Pay."
    return "paid"

def told(use):
    try:
        return use()
    except UsageError as error:
        return str(error)

call = RawCall(name="pay", arguments={"n": 1}, id="call_1")
journal = SqliteJournal(sys.argv[1])
engine = Engine([pay], journal=journal)
if not (child := os.fork()):
    print(told(lambda: engine.call_sync(call)))
    print(told(lambda: Engine([pay], journal=journal)), flush=True)
    with_own = Engine([pay], journal=SqliteJournal(sys.argv[1]))
    print(with_own.call_sync(call).result.text)
    with_own.close_sync()
    sys.exit()
os.waitpid(child, 0)
print(engine.call_sync(call).result.text)
engine.close_sync()
"""


def test_an_engine_and_a_journal_that_nothing_has_used_are_refused_in_a_forked_child(tmp_path: Path) -> None:
    """As with a server that loads the program once and forks its workers."""
    place = str(tmp_path / "calls.db")
    command = [sys.executable, "-W", "ignore", "-c", SHARED, place]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    lines = ran.stdout.splitlines()
    assert (lines[0], lines[2:]) == (REFUSAL, ["paid", "paid"]), ran.stderr
    assert f"The journal {place} was opened before this process was forked, and cannot be used in it. Make the journal" in lines[1]
