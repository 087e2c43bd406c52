"""Two tasks hand in the same response, and responses without an id."""

from __future__ import annotations

import asyncio

import pytest

from callgate import Engine, Scope, tool
from tests.provider_responses.shop import A7, AskAboutRefunds, completion, paid, refund


async def test_two_tasks_that_hand_in_the_same_response_share_its_calls() -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @tool(name="refund")
    async def slow(order: str) -> str:
        """Refund an order."""
        paid.append(order)
        started.set()
        await may_end.wait()
        return f"refunded {order}"

    async with Engine([slow]) as engine:
        tasks = [asyncio.create_task(engine.respond(completion(A7)))]
        await started.wait()
        tasks.append(asyncio.create_task(engine.respond(completion(A7))))
        may_end.set()
        first, second = await asyncio.gather(*tasks)
    assert first.results == second.results
    assert paid == ["A7"]


async def test_a_call_whose_first_task_was_cancelled_is_unknown_for_the_second_and_names_that_call() -> None:
    """The tool was cancelled with its task after it may have had its effect: to run it again could have the effect twice."""
    started = asyncio.Event()

    @tool(name="refund")
    async def slow(order: str) -> str:
        """Refund an order."""
        paid.append(order)
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with Engine([slow]) as engine:
        first = asyncio.create_task(engine.respond(completion(A7), Scope(run="r")))
        await started.wait()
        second = asyncio.create_task(engine.respond(completion(A7), Scope(run="r")))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        joined, later = await second, await engine.respond(completion(A7), Scope(run="r"))
    for reply in (joined, later):
        result = reply.outcomes[0].result  # type: ignore[union-attr]
        assert (result.status, result.structured) == ("unknown", {"earlier_call": "r/0/0"})
        assert "may have taken effect" in str(result.error)
    assert paid == ["A7"]


async def test_responses_without_an_id_are_told_apart_by_the_hosts_message_id() -> None:
    response = completion(A7)
    del response["id"]
    async with Engine([refund]) as engine:
        await engine.respond(response)
        again = await engine.respond(response)
        assert paid == ["A7"]
        (note,) = again.outcomes[0].result.metadata.notes  # type: ignore[union-attr]
        assert "Scope.message_id" in note.text
        await engine.respond(response, Scope(message_id="second"))
    assert paid == ["A7", "A7"]


async def test_no_call_runs_twice_when_a_response_without_any_id_is_handed_in_after_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Some services leave out the id of Gemini's response, and Gemini gives its calls no ids. Each call was then another call each time."""

    @tool
    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(f"paid {order}")
        return f"paid {order}"

    calls = [{"functionCall": {"name": name, "args": {"order": order}}} for name, order in (("refund", "A7"), ("pay", "B8"), ("pay", "B8"))]
    response = {"candidates": [{"content": {"role": "model", "parts": calls}, "finishReason": "STOP"}]}
    async with Engine([refund, pay], policies=[AskAboutRefunds()]) as engine:
        asked = await engine.respond(response)
        assert (asked.message_id, asked.ended, paid) == ("", "suspended", ["paid B8", "paid B8"])
        await engine.approve(asked.suspended[0].approval_id, by="bob")
        reply = await engine.respond(response)
        assert (reply.ended, paid) == (None, ["paid B8", "paid B8", "A7"])
        assert "give Scope.message_id" in caplog.text
        await engine.respond(response, Scope(message_id="second"))
    assert paid[3:] == ["paid B8", "paid B8"]
