"""A host learns of an unknown outcome from the reply and from its log, not only the model."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from callgate import Engine, Scope, SqliteJournal, tool
from callgate.calls import Effect
from tests.provider_responses.shop import claude

PAY = ("pay", {"order": "A7"})


@tool
def pay(order: str) -> str:
    """Pay an order."""
    raise ConnectionResetError("no reply")


@pytest.mark.parametrize("in_file", [True, False], ids=["a journal in a file", "a journal in memory, which no command can read"])
@pytest.mark.parametrize(("second", "warned"), [("msg_1", False), ("msg_2", True)], ids=["the same message", "another message"])
async def test_the_reply_and_one_warning_for_each_call_name_what_may_have_taken_effect(
    second: str, warned: bool, in_file: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    async with Engine([pay], journal=journal_in(tmp_path, in_file=in_file)) as engine:
        for message_id, expected in (("msg_1", True), (second, warned)):
            caplog.clear()
            reply = await engine.respond(claude(PAY, message_id=message_id), Scope(run="chat"))
            assert [one.result.status for one in reply.unknown] == ["unknown"]
            assert (reply.ended, len(reply.messages)) == (None, 2)
            warnings = [one for one in caplog.records if "chat/0/0 (pay) may have taken effect" in one.getMessage()]
            assert [one.levelno for one in warnings] == ([logging.WARNING] if expected else [])
            assert [f"callgate settle chat/0/0 --happened --journal {tmp_path}" in one.getMessage() for one in warnings] == (
                [in_file] if expected else []
            )


def journal_in(folder: Path, *, in_file: bool) -> SqliteJournal | None:
    return SqliteJournal(folder / "calls.db") if in_file else None


async def test_a_log_line_of_a_call_without_reasoning_ends_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([pay]) as engine:
        with caplog.at_level(logging.INFO, logger="callgate"):
            await engine.respond(claude(PAY))
    assert "Tool call: pay" in [one.getMessage() for one in caplog.records]


async def test_the_reply_names_a_call_with_an_effect_that_was_ended_while_it_ran(caplog: pytest.LogCaptureFixture) -> None:
    started = asyncio.Event()

    @tool
    async def hang(order: str) -> str:
        """Pay, and never end."""
        started.set()
        await asyncio.Event().wait()
        return order

    async with Engine([hang]) as engine:
        reply = asyncio.create_task(engine.respond(claude(("hang", {"order": "A7"})), Scope(run="r", conversation="c")))
        await started.wait()
        engine.control.kill("c", "bye")
        ended = await reply
    assert (ended.ended, [one.result.uid for one in ended.unknown]) == ("aborted", ["r/0/0"])
    assert (
        ended.reason
        == "stopped_by_user: bye. hang (r/0/0) had started and may have taken effect: check that before the call is made again."
    )
    assert "r/0/0 (hang) may have taken effect; its outcome is unknown." in caplog.text


@pytest.mark.parametrize("effect", ["once", "none"])
async def test_the_log_names_a_call_with_an_effect_whose_caller_was_cancelled(effect: Effect, caplog: pytest.LogCaptureFixture) -> None:
    """A web server cancels a handler whose client has left, so that no reply reports the call."""
    started = asyncio.Event()

    @tool(effect=effect)
    async def hang(order: str) -> str:
        """Pay, and never end."""
        started.set()
        await asyncio.Event().wait()
        return order

    async with Engine([hang]) as engine:
        handler = asyncio.create_task(engine.respond(claude(("hang", {"order": "A7"})), Scope(run="r", conversation="c")))
        await started.wait()
        handler.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handler
    assert ("r/0/0 (hang) may have taken effect; its outcome is unknown." in caplog.text) == (effect == "once")
