"""A worker of a web server: it makes one call of a conversation for each line that it reads, and prints the result as JSON.

Its words are JOURNAL LEDGER LEASE_S. A line is a call's id. With the id `hang`, the tool writes its line to the ledger and hangs. A
human is asked about the id `ask`; the worker prints the id of the question.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from callgate import Allow, Ask, Engine, RawCall, Scope, Suspended, tool
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from tests.effect_ledger import Ledger
from tests.engine_calls import result_of
from tests.forked_python import ChildProcess, child_process
from tests.recovery.paused_run_process import opened
from tests.waiting import HANGS_S

__all__ = ["CHAT", "chat_worker", "send", "served"]

CHAT = Scope(run="chat-1", conversation="chat-1")


class _AsksAboutOneSeat:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return Ask(question="Book it?") if call.arguments["seat"] == "ask" else Allow()


async def _work(place: str, ledger: str, lease_s: str) -> None:
    lines = Ledger(Path(ledger))

    @tool
    async def book(seat: str) -> str:
        """Book a seat."""
        lines.write(seat)
        if seat == "hang":
            await asyncio.sleep(HANGS_S)
        return f"booked {seat}"

    async with Engine([book], policies=[_AsksAboutOneSeat()], journal=opened(place, float(lease_s))) as engine:
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            outcome = await engine.call(RawCall(name="book", arguments={"seat": line}, id=line), CHAT)
            if isinstance(outcome, Suspended):
                print(json.dumps({"status": "asked", "approval_id": outcome.approval_id}), flush=True)  # noqa: T201
                continue
            result = result_of(outcome)
            said = {"uid": result.uid, "status": result.status, "code": result.code, "again": result.metadata.replayed}
            print(json.dumps(said), flush=True)  # noqa: T201


@contextmanager
def chat_worker(place: str, ledger: Ledger, lease_s: float) -> Iterator[ChildProcess]:
    with child_process("tests.recovery.chat_worker_process", place, str(ledger.path), str(lease_s)) as process:
        yield process


def send(process: ChildProcess, seat: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{seat}\n")
    process.stdin.flush()


def served(process: ChildProcess, seat: str) -> dict[str, Any]:
    """Let the worker make a call, and return its result."""
    send(process, seat)
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert isinstance(said, dict)
    return said


def main(words: list[str]) -> None:
    asyncio.run(_work(*words))
