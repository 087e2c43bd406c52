"""What a call with an effect did, or may have done, before a stop or a kill is kept: on record and for the history of the host."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from callgate import Aborted, Answered, Engine, Scope, SqliteJournal, Suspended, ToolContext, ToolResult, tool
from callgate.response_calls import ResponseReply
from tests.engine_calls import call, result_of
from tests.provider_responses.shop import claude

IN_RUN = Scope(run="chat", conversation="chat")
MESSAGE: tuple[tuple[str, dict[str, str]], ...] = (("refund", {"order": "A7"}), ("look", {}))


class Shop:
    """Tools of which one runs until `release` is set."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.running, self.release = asyncio.Event(), asyncio.Event()

    def engine(self, path: Path) -> Engine:
        @tool(key="refund:{order}")
        async def refund(order: str) -> str:
            """Refund an order."""
            self.paid.append(order)
            self.running.set()
            await self.release.wait()
            return f"refunded {order}"

        @tool(effect="none")
        def look() -> str:
            """Look."""
            return "seen"

        return Engine([refund, look], journal=SqliteJournal(path / "calls.db"))


def texts(reply: ResponseReply) -> list[str]:
    return [item["content"] for turn in reply.results for item in turn["content"]]


async def stopped(engine: Engine, shop: Shop) -> ResponseReply:
    """Hand in the message, stop it while its first call runs, and let that call finish."""
    asked = asyncio.create_task(engine.respond(claude(*MESSAGE, message_id="msg_1"), IN_RUN))
    await shop.running.wait()
    engine.control.stop("chat", "ops")
    shop.release.set()
    reply = await asked
    engine.control.end_turn("chat")
    return reply


async def test_the_reply_has_the_result_of_a_call_that_finished_after_a_stop(tmp_path: Path) -> None:
    shop = Shop()
    async with shop.engine(tmp_path) as engine:
        reply = await stopped(engine, shop)
        assert (reply.ended, reply.done) == ("aborted", True)
        assert reply.reason.startswith("stopped_by_user: ops. refund (chat/0/0) ran to its end")
        refunded, looked = texts(reply)
        assert refunded == "refunded A7"
        assert "It was not started" in looked
        assert isinstance(reply.outcomes[0], Aborted)
        assert [event.kind for event in engine.journal.read(call="chat/0/0")][-1] == "call.completed"


async def test_a_call_that_finished_after_a_stop_is_replayed_and_answers_its_key(tmp_path: Path) -> None:
    """Also in another engine: the record says that it was done."""
    shop = Shop()
    async with shop.engine(tmp_path) as engine:
        await stopped(engine, shop)
        assert texts(await engine.respond(claude(*MESSAGE, message_id="msg_1"), IN_RUN)) == ["refunded A7", "seen"]
    async with shop.engine(tmp_path) as engine:
        assert texts(await engine.respond(claude(*MESSAGE, message_id="msg_1"), IN_RUN)) == ["refunded A7", "seen"]
        elsewhere = result_of(await engine.call(call("refund", order="A7"), Scope(run="other", conversation="other")))
        assert (elsewhere.status, elsewhere.text.splitlines()[0]) == ("ok", "refunded A7")
    assert shop.paid == ["A7"]


async def test_a_call_that_has_not_started_when_the_stop_comes_does_not_start(tmp_path: Path) -> None:
    shop = Shop()
    async with shop.engine(tmp_path) as engine:
        engine.control.stop("chat", "ops")
        outcome = await engine.call(call("refund", order="A7"), IN_RUN)
        engine.control.end_turn("chat")
        assert isinstance(outcome, Aborted)
        assert outcome.kept_result is None
        shop.release.set()
        assert isinstance(await engine.call(call("refund", order="A7"), IN_RUN), Answered)
    assert shop.paid == ["A7"]


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("before", [(), (("refund", {"order": "B8"}),)], ids=["alone", "after a new call"])
async def test_a_call_that_is_handed_in_again_during_a_stop_has_the_result_that_it_had(
    how: str, before: tuple[tuple[str, dict[str, str]], ...], tmp_path: Path
) -> None:
    """Also after a restart. If the model read that nothing had happened, it would ask for a second refund."""
    shop = Shop()
    shop.release.set()
    paid = {"type": "tool_use", "id": "toolu_paid", "name": "refund", "input": {"order": "A7"}}
    response = claude(("look", {}), message_id="msg_1")
    response["content"].append(paid)
    async with shop.engine(tmp_path) as engine:
        assert texts(await engine.respond(response, IN_RUN)) == ["seen", "refunded A7"]
    response["content"] = [*claude(*before)["content"], paid]
    async with shop.engine(tmp_path) as engine:
        getattr(engine.control, how)("chat", "ops")
        reply = await engine.respond(response, IN_RUN)
        assert (reply.ended, texts(reply)[-1]) == ("aborted", "refunded A7")
    assert shop.paid == ["A7"]


async def test_a_kill_that_is_pending_aborts_a_response(tmp_path: Path) -> None:
    shop = Shop()
    async with shop.engine(tmp_path) as engine:
        engine.control.kill("chat", "ops")
        reply = await engine.respond(claude(*MESSAGE, message_id="msg_1"), IN_RUN)
        assert (reply.ended, reply.done, reply.messages) == ("aborted", True, [])
    assert shop.paid == []


async def test_a_call_in_doubt_that_is_handed_in_again_during_a_stop_is_unknown(tmp_path: Path) -> None:
    shop = Shop()
    response = claude(("refund", {"order": "A7"}), message_id="msg_1")
    async with shop.engine(tmp_path) as engine:
        asked = asyncio.create_task(engine.respond(response, IN_RUN))
        await shop.running.wait()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        engine.control.stop("chat", "ops")
        reply = await engine.respond(response, IN_RUN)
        assert (reply.ended, len(reply.messages)) == ("aborted", 2)
        assert "may have taken effect" in texts(reply)[0]
        assert "chat/0/0" in texts(reply)[0]


async def test_the_reply_has_the_failure_of_a_call_that_raised_after_a_stop(tmp_path: Path) -> None:
    """Its effect may have happened before it raised, so the model has to know that it was made."""
    shop = Shop()

    @tool(effect="idempotent")
    async def save(order: str) -> str:
        """Save an order."""
        shop.paid.append(order)
        engine.control.stop("chat", "ops")
        raise ValueError("disk is full")

    async with shop.engine(tmp_path) as engine:
        engine.tools.register(save)
        reply = await engine.respond(claude(("save", {"order": "A7"}), message_id="msg_1"), IN_RUN)
        assert (reply.ended, len(reply.messages)) == ("aborted", 2)
        assert "save failed: disk is full" in texts(reply)[0]
    assert shop.paid == ["A7"]


async def test_a_nested_call_that_finishes_after_a_stop_gives_its_result_to_the_tool_that_made_it(tmp_path: Path) -> None:
    shop, told = Shop(), asyncio.Queue[ToolResult]()

    @tool
    async def close(context: ToolContext, order: str) -> str:
        """Close an order."""
        told.put_nowait(await context.call("refund", {"order": order}))
        return "closed"

    async with shop.engine(tmp_path) as engine:
        engine.tools.register(close)
        asked = asyncio.create_task(engine.call(call("close", order="A7"), IN_RUN))
        await shop.running.wait()
        engine.control.stop("chat", "ops")
        shop.release.set()
        await asked
        refunded = told.get_nowait()
    assert (refunded.status, refunded.text) == ("ok", "refunded A7")


async def test_the_reply_says_that_a_killed_call_may_have_taken_effect(tmp_path: Path) -> None:
    """A host appends `messages` and goes on with the next message of its user: the model must not pay again in other words."""
    shop = Shop()
    async with shop.engine(tmp_path) as engine:
        asked = asyncio.create_task(engine.respond(claude(MESSAGE[0], message_id="msg_1"), IN_RUN))
        await shop.running.wait()
        engine.control.kill("chat", "ops")
        reply = await asked
        assert (reply.ended, reply.done, reply.outcomes[0].message()["tool_call_id"]) == ("aborted", True, "toolu_0")
        assert reply.reason == "stopped_by_user: " + json.loads(texts(reply)[0])["error"]
        assert [part["name"] for part in reply.messages[0]["content"]] == ["refund"]
        refunded = json.loads(texts(reply)[0])
        assert (refunded["status"], refunded["code"]) == ("unknown", "killed")
        assert "refund (chat/0/0) had started and may have taken effect" in refunded["error"]
        assert [(one.result.uid, one.result.failure_class) for one in reply.unknown] == [("chat/0/0", "killed")]
        engine.control.end_turn("chat")
        again = await engine.respond(claude(MESSAGE[0], message_id="msg_1"), IN_RUN)
        assert [one.result.uid for one in again.unknown] == ["chat/0/1"]
    assert shop.paid == ["A7"]


async def test_an_answer_of_a_tool_that_came_before_its_call_was_ended_is_kept() -> None:
    """It says what the tool did: that it succeeded, or returned something of the wrong type."""

    @tool(output_schema={"type": "integer"})
    async def pay(order: str) -> Any:
        """Pay, and end the conversation."""
        engine.control.stop("chat", "ops")
        return 12 if order == "A7" else "twelve"

    async with Engine([pay]) as engine:
        for number, (order, code) in enumerate({"A7": None, "B8": "output_schema"}.items()):
            reply = await engine.respond(claude(("pay", {"order": order}), message_id=f"msg_{number}"), IN_RUN)
            outcome = reply.outcomes[0]
            assert isinstance(outcome, Aborted)
            assert outcome.kept_result is not None
            assert (outcome.kept_result.code, len(texts(reply))) == (code, 1)
            engine.control.end_turn("chat")


@pytest.mark.parametrize("effect", ["once", "none"])
async def test_a_call_whose_tool_returned_after_its_kill_may_have_taken_effect(effect: Any) -> None:
    """A careful tool completes a payment that it has begun, and returns only then."""
    paid: list[str] = []

    @tool(effect=effect)
    async def pay(order: str) -> str:
        """Pay, and be killed meanwhile."""
        engine.control.kill("chat", "ops")
        paid.append(order)
        return f"paid {order}"

    async with Engine([pay]) as engine:
        reply = await engine.respond(claude(("pay", {"order": "A7"}), message_id="msg_1"), IN_RUN)
    assert (paid, reply.ended) == (["A7"], "aborted")
    assert ["pay (chat/0/0) had started and may have taken effect" in text for text in texts(reply)] == ([True] if effect == "once" else [])
    assert len(reply.unknown) == len(reply.messages) // 2 == (effect == "once")


async def test_a_call_that_has_paid_is_not_offered_to_be_sent_again_if_the_engine_closes(tmp_path: Path) -> None:
    paid: list[str] = []
    sending = asyncio.Event()

    @tool(requires_approval=True)
    async def send() -> str:
        """Send the parcel."""
        sending.set()
        await asyncio.Event().wait()
        return "sent"

    @tool
    async def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "paid"

    message = [call("send", id="c0"), call("pay", id="c1")]
    scope = Scope(run="chat", message_id="msg_1")
    async with Engine([send, pay], journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        asked, first = await engine.call_many(message, scope)
        assert isinstance(asked, Suspended)
        assert result_of(first).status == "ok"
        await engine.approve(asked.approval_id)
        again = asyncio.create_task(engine.call_many(message, scope))
        await sending.wait()
    waiting = result_of((await again)[1])
    assert waiting.error is not None
    assert "made before and has ended" in waiting.error
    assert "may be sent again" not in waiting.error
    async with Engine([send, pay], journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        assert result_of((await engine.call_many(message, scope))[1]).structured == "paid"
    assert paid == ["paid"]
