"""Forked processes: an engine works only in the process that made it, and raises in a child."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import PATIENCE_S

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
    refusal = "This engine was made before this process was forked, and cannot work in it. Make a new one here."
    assert ran.stdout.splitlines() == ["seen", refusal, refusal, "seen"], ran.stderr
