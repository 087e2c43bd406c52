"""A process that refunds one order with a tool that has a key of its effect, and stands still or dies where it is told to.

Its words are JOURNAL LEDGER RUN PLACE LEASE_S. At PLACE it says `here` and waits for a line: `start` is before it hands in the call, `tool`
is inside the tool when the ledger has the refund, `agent` the same in an agent's run and with an idempotent tool; `claimed` ends it with
SIGKILL between its claim and its start; or `nowhere`. It prints its result as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from callgate import Engine, RawCall, Scope, Tool, ToolResult, tool
from callgate.agent import Agent
from callgate.calls import Effect
from callgate.events import Draft
from callgate.messages import ToolMessage
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from tests.agent.scripted_model import call as model_call
from tests.agent.scripted_model import says
from tests.effect_ledger import Ledger
from tests.engine_calls import result_of
from tests.forked_python import ChildProcess, child_process
from tests.recovery.paused_run_process import opened

__all__ = ["ORDER", "Refunder", "refunded", "refunding", "refunds", "told"]

ORDER = "A7"


class _KilledBeforeStart:
    """A journal whose process is killed when a call is to start."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.writer: str = journal.writer

    def has_ended(self, writer: str) -> bool:
        return bool(self._journal.has_ended(writer))

    def append(self, draft: Draft) -> int:
        if draft.kind == "call.started":
            os.kill(os.getpid(), signal.SIGKILL)
        return int(self._journal.append(draft))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


async def _stand() -> None:
    print("here", flush=True)  # noqa: T201
    await asyncio.to_thread(sys.stdin.readline)


def refunding(ledger: Ledger, *, waits: bool = False, effect: Effect = "once") -> Tool:
    @tool(key="refund:{order}", effect=effect)
    async def refund(order: str) -> str:
        """Refund an order."""
        ledger.write(order)
        if waits:
            await _stand()
        return f"refunded {order}"

    return refund


class Refunder:
    """A model that asks for one refund."""

    provider, name, native_tools = "scripted", "refunder", True

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        done = any(isinstance(message, ToolMessage) for message in request.messages)
        for step in says("Done.") if done else says(model_call("refund", {"order": ORDER}, id="c0")):
            yield step  # type: ignore[misc]


async def refunded(engine: Engine, run: str) -> ToolResult:
    return result_of(await engine.call(RawCall(name="refund", arguments={"order": ORDER}), Scope(run=run)))


def told(result: ToolResult) -> dict[str, object]:
    text, again = result.text.partition("\nNote: ")[0], result.metadata.replayed or result.metadata.joined
    return {"uid": result.uid, "status": result.status, "text": text, "again": again}


async def _work(place: str, ledger: str, run: str, stands: str, lease_s: str) -> None:
    journal: Any = opened(place, float(lease_s))
    if stands == "claimed":
        journal = _KilledBeforeStart(journal)
    waits = stands in ("tool", "agent")
    effect: Effect = "idempotent" if stands == "agent" else "once"
    async with Engine([refunding(Ledger(Path(ledger)), waits=waits, effect=effect)], journal=journal) as engine:
        if stands == "agent":
            await Agent(Refunder(), engine).run("Refund it.", scope=Scope(run=run))
        if stands == "start":
            await _stand()
        print(json.dumps(told(await refunded(engine, run))), flush=True)  # noqa: T201


@contextmanager
def refunds(place: str, ledger: Ledger, run: str, stands: str, lease_s: float = 3_000) -> Iterator[ChildProcess]:
    """Such a process; ended with the block."""
    with child_process("tests.recovery.effect_key_process", place, str(ledger.path), run, stands, str(lease_s)) as process:
        yield process


def main(words: list[str]) -> None:
    asyncio.run(_work(*words))
