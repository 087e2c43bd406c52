"""A process that works on a run of an agent and pauses at a given place, so that a test can take over its run.

Its arguments are JOURNAL LEDGER RUN PLACE LEASE_S. It makes three payments, one per message. At PLACE it prints `here` and waits: `pass` is
before the model requests the second payment, `tool` is inside that payment after the ledger has it, `nowhere` never pauses. It prints the
result of the run as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from callgate import Engine, PostgresJournal, Scope, SqliteJournal, Tool, tool
from callgate.agent import Agent, RunResult
from callgate.messages import ToolMessage
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from tests.agent.scripted_model import call, says
from tests.effect_ledger import Ledger
from tests.forked_python import ChildProcess, child_process

__all__ = ["PEOPLE", "Payer", "opened", "paying", "told", "working"]

PEOPLE = ("ann", "bob", "cid")


class Payer:
    """A model that requests one payment after another."""

    provider, name, native_tools = "scripted", "payer", True

    def __init__(self, waits: bool = False) -> None:
        self._waits = waits

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        paid = sum(isinstance(message, ToolMessage) for message in request.messages)
        if self._waits and paid == 1:
            await _stand()
        answer = says(call("pay", {"to": PEOPLE[paid]}, id=f"c{paid}")) if paid < len(PEOPLE) else says("Done.")
        for step in answer:
            yield step  # type: ignore[misc]


async def _stand() -> None:
    print("here", flush=True)  # noqa: T201
    await asyncio.to_thread(sys.stdin.readline)


def paying(ledger: Ledger, waits: bool = False) -> Tool:
    @tool
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        if waits and to == PEOPLE[1]:
            await _stand()
        return f"paid {to}"

    return pay


def opened(place: str, lease_s: float) -> SqliteJournal | PostgresJournal:
    return PostgresJournal(place, lease_s=lease_s) if "://" in place else SqliteJournal(place, lease_s=lease_s)


def told(result: RunResult) -> dict[str, object]:
    ends = [[one.status, one.code] for one in result.results]
    return {"status": result.status, "reason": result.reason, "ends": ends}


async def _work(place: str, ledger: str, run: str, stands: str, lease_s: str) -> None:
    engine = Engine([paying(Ledger(Path(ledger)), stands == "tool")], journal=opened(place, float(lease_s)))
    async with engine, Agent(Payer(stands == "pass"), engine) as agent:
        result = await agent.run("Pay all three.", scope=Scope(run=run))
    print(json.dumps(told(result)), flush=True)  # noqa: T201


@contextmanager
def working(place: str, ledger: Ledger, run: str, stands: str, lease_s: float) -> Iterator[ChildProcess]:
    """Provide such a process, which ends with the block."""
    with child_process("tests.recovery.paused_run_process", place, str(ledger.path), run, stands, str(lease_s)) as process:
        yield process


def main(words: list[str]) -> None:
    asyncio.run(_work(*words))
