"""What a tool returned or raised after its call had ended is on record, without secrets, for the operator who settles the call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, tool
from tests.cli.shell import shell
from tests.waiting import PATIENCE_S

SECRET = "sk-" + "s" * 40


class Hider:
    """A redactor that hides one secret."""

    def redact(self, body: bytes) -> bytes:
        return body.replace(SECRET.encode(), b"[redacted]")


async def pay_late(folder: Path, answer: Callable[[], object]) -> None:
    """Make a payment in a thread that answers only after its call has ended."""
    go_on, late, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()

    @tool(effect="once", timeout_s=0.05)
    def pay(invoice: str) -> object:
        """Pay an invoice."""
        go_on.wait(PATIENCE_S)
        return answer()

    def heard(topic: str, event: object) -> None:
        loop.call_soon_threadsafe(late.set)

    async with Engine([pay], journal=SqliteJournal(folder / "calls.db"), redactor=Hider()) as engine:
        engine.bus.subscribe(heard, "call.late")
        await engine.call(RawCall(name="pay", arguments={"invoice": "A"}), Scope(run="chat"))
        go_on.set()
        await asyncio.wait_for(late.wait(), PATIENCE_S)


def fail() -> object:
    raise ConnectionError(f"the bank said 503 to {SECRET}")


@pytest.mark.parametrize(
    ("answer", "recorded"),
    [
        (lambda: {"receipt": "R7", "card": SECRET}, '{"card":"[redacted]","receipt":"R7"}'),
        (fail, "ConnectionError: the bank said 503 to [redacted]"),
        (lambda: "x" * 70_000, "a value of more than 65,536 bytes"),
    ],
    ids=["returned", "raised", "large"],
)
async def test_an_operator_reads_what_the_tool_answered_later(tmp_path: Path, answer: Callable[[], object], recorded: str) -> None:
    await pay_late(tmp_path, answer)
    (call,) = shell(tmp_path, "settle", "--json", "--journal", "calls.db").lines
    assert call["late_answer"] == recorded
    listed = shell(tmp_path, "settle", "--journal", "calls.db").out
    assert f": {recorded}. That answer was discarded." in listed
    assert recorded in shell(tmp_path, "log", "show", "chat", "--journal", "calls.db").out
    assert SECRET.encode() not in (tmp_path / "calls.db").read_bytes()


async def test_a_value_that_only_foreign_code_can_read_is_recorded_by_its_type(tmp_path: Path) -> None:
    class Receipt:
        pass

    go_on, recorded = asyncio.Event(), asyncio.Event()

    @tool(effect="once", timeout_s=0.05)
    async def pay() -> object:
        """Pay."""
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go_on.wait()
        return Receipt()

    async with Engine([pay], journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        engine.bus.subscribe(lambda topic, event: recorded.set(), "call.late")
        await engine.call(RawCall(name="pay", arguments={}), Scope(run="chat"))
        go_on.set()
        await asyncio.wait_for(recorded.wait(), PATIENCE_S)
    (call,) = shell(tmp_path, "settle", "--json", "--journal", "calls.db").lines
    assert call["late_answer"].startswith("a value of the type ")
