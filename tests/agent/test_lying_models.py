"""Models that lie about their end, their calls and their errors: what the loop promises holds all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from callgate.agent import Agent, Budget, Settings
from callgate.calls import Text
from callgate.messages import AssistantMessage, ToolCall
from callgate.models.events import CallReopened, CallSealed, Finished, ModelEvent, TextDelta, Usage
from callgate.models.model import StreamingContext
from tests.agent.board import Desk
from tests.agent.liars import Lying, done, lies
from tests.agent.scripts import Script, call, ends, says


async def test_a_model_that_does_not_end_after_its_end_is_left_there() -> None:
    """B2, B18: the message is whole; what the model does afterwards keeps nobody waiting."""
    closed: list[str] = []

    async def stream(context: StreamingContext) -> AsyncIterator[ModelEvent]:
        try:
            yield TextDelta("done")
            yield ends(Text(text="done"))
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    async with Agent(Lying(stream)) as agent:
        result = await asyncio.wait_for(agent.run("x"), 60)
    assert (result.turn_status, result.text, closed) == ("completed", "done", ["closed"])


async def test_a_model_that_will_not_close_can_be_killed() -> None:
    """B17, B18: kill unblocks a pass at every moment, also while the model closes its connection."""
    closing = asyncio.Event()

    async def stream(context: StreamingContext) -> AsyncIterator[ModelEvent]:
        try:
            yield TextDelta("done")
            yield ends(Text(text="done"))
        finally:
            closing.set()
            await asyncio.Event().wait()

    async with Agent(Lying(stream)) as agent:
        run = asyncio.ensure_future(agent.run("x", conversation="c"))
        await closing.wait()
        agent.kill("c")
        assert (await asyncio.wait_for(run, 60)).text == "done"


class Unclosable:
    """Events that end well, and fail when they are closed."""

    def __init__(self, events: Sequence[ModelEvent]) -> None:
        self._events = iter(events)

    def __aiter__(self) -> AsyncIterator[ModelEvent]:
        return self

    async def __anext__(self) -> ModelEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration

    async def aclose(self) -> None:
        raise RuntimeError("the connection is gone")


@pytest.mark.parametrize(("events", "reason"), [((ends(Text(text="a")),), ""), ((), "RuntimeError: the connection is gone")])
async def test_a_message_that_has_ended_is_whole_also_where_closing_fails(events: Sequence[ModelEvent], reason: str) -> None:
    """What the connection does after the last event changes nothing that was said."""
    async with Agent(Lying(lambda _: Unclosable(events))) as agent:
        result = await agent.run("x")
    assert (result.status, result.reason) == ("failed" if reason else "completed", reason)


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Speechless(), "Speechless, whose text cannot be shown: its __str__ fails"),
        (TimeoutError(), "TimeoutError, without a message"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ExceptionGroup: two (2 sub-exceptions): ValueError: a; KeyError: 'b'"),
    ],
)
async def test_a_run_ends_and_says_why_whatever_its_model_raises(error: Exception, reason: str) -> None:
    """`run` never raises for what a model does, and the reason is for people."""
    async with Agent(Script([error])) as agent:
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == ("error", reason)


async def test_what_comes_after_the_end_does_not_count() -> None:
    """`Finished` comes last and exactly once: the first one is the end."""
    answer = lies(TextDelta("a"), ends(Text(text="a")), TextDelta("b"), ends(Text(text="b")))
    async with Agent(Lying(answer)) as agent:
        result = await agent.run("x")
    assert (result.text, len(result.messages)) == ("a", 2)


async def test_a_call_that_nothing_sealed_is_closed_by_the_message(desk: Desk) -> None:
    """A model may tell of its calls with the whole message only; its good end is their proof, and a bad one is none."""
    answers = [lies(ends(call("change", {"what": "x"}))), done]
    async with Agent(Lying(*answers), tools=desk.tools()) as agent:
        assert (await agent.run("x")).completed
    assert desk.changed == ["x"]
    answers = [lies(ends(call("change", {"what": "cut"}), reason="length")), done]
    async with Agent(Lying(*answers), tools=desk.tools()) as agent:
        result = await agent.run("x")
    assert desk.changed == ["x"]
    assert [each.failure_class for each in result.results] == ["truncated_arguments"]


A, OLD, NEW = call("look", {"what": "a"}, id="a"), call("change", {"what": "old"}, id="b"), call("change", {"what": "new"}, id="b")


@pytest.mark.parametrize(
    "events",
    [
        [CallSealed(1, OLD), CallReopened(1), CallSealed(0, A), CallSealed(1, NEW, "finished"), ends(A, NEW)],
        [CallSealed(0, A), CallSealed(1, OLD), CallReopened(1), CallSealed(1, NEW), ends(A, NEW)],
        [CallSealed(0, A), CallSealed(1, OLD), CallSealed(1, NEW), ends(A, NEW)],
        [CallSealed(0, A), CallSealed(1, OLD), ends(A, NEW)],
        [CallSealed(0, A), CallSealed(1, NEW), CallSealed(2, OLD), ends(A, NEW)],
        [CallSealed(1, A), CallSealed(0, OLD), ends(A, NEW)],
    ],
    ids=["went on while held", "went on", "sealed twice", "other than sealed", "more than the message has", "other places"],
)
async def test_only_what_the_message_says_in_the_end_is_executed(desk: Desk, events: list[ModelEvent]) -> None:
    """Requirement D1: the calls of a message are those of the whole message; what was sealed before and is not in it has no effect."""
    async with Agent(Lying(lies(*events), done), tools=desk.tools()) as agent:
        result = await agent.run("x")
    assert desk.changed == ["new"]
    assert [each.text for each in result.results] == ["saw a", "changed new"]
    assert result.spent.calls == 2


async def test_a_call_that_is_read_again_is_paid_for_once(desk: Desk) -> None:
    """E3: the budget of calls counts calls, not readings of them."""
    old, new = call("look", {"what": "old"}, id="b"), call("look", {"what": "new"}, id="b")
    answer = lies(CallSealed(0, old), CallReopened(0), CallSealed(0, new, "finished"), ends(new))
    settings = Settings(budget=Budget(calls=1))
    async with Agent(Lying(answer, done), tools=desk.tools(), settings=settings) as agent:
        result = await agent.run("x")
    assert [each.text for each in result.results] == ["saw new"]
    assert result.spent.calls == 1


async def test_an_answer_that_a_filter_has_cut_says_so() -> None:
    async with Agent(Script(says("half", reason="content_filter"))) as agent:
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == ("completed", "the answer was cut by the provider's content filter")


WHOLE = AssistantMessage(parts=(Text(text="done"),))


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([Finished(reason="stop", message=None)], "The model's Finished.message is a NoneType; it must be of type AssistantMessage."),  # type: ignore[arg-type]
        ([Finished(reason="stop", message="hi")], "The model's Finished.message is a str; it must be of type AssistantMessage."),  # type: ignore[arg-type]
        (
            [Finished(reason="stop", message=AssistantMessage(parts=None))],  # type: ignore[arg-type]
            "The model's AssistantMessage.parts is a NoneType; it must be a tuple of parts.",
        ),
        (
            [Finished(reason="stop", message=AssistantMessage(parts=("hi",)))],  # type: ignore[arg-type]
            "The model's AssistantMessage.parts has a str; its parts are Text, Reasoning, ToolCall and Native.",
        ),
        (
            [Finished(reason="stop", message=WHOLE, usage=Usage(input_tokens=None))],  # type: ignore[arg-type]
            "The model's Usage.input_tokens is a NoneType; it must be an integer, 0 if unknown.",
        ),
        (
            [Finished(reason="stop", message=WHOLE, usage=7)],  # type: ignore[arg-type]
            "The model's Finished.usage is a int; it must be of type Usage, or None.",
        ),
        (
            [Finished(reason="error", message=WHOLE, fault="busy")],  # type: ignore[arg-type]
            "The model's Finished.fault is a str; it must be of type Fault, or None.",
        ),
        ([CallSealed(0, None), ends(Text(text="done"))], "The model's CallSealed.call is a NoneType; it must be a ToolCall."),  # type: ignore[arg-type]
        (
            [ends(ToolCall(id="a", name="look", arguments={"what": "x"}))],  # type: ignore[arg-type]
            "The model's ToolCall.arguments is a dict; it must be text: the arguments as JSON.",
        ),
    ],
)
async def test_what_no_model_may_yield_ends_the_run_with_what_it_must(desk: Desk, events: list[ModelEvent], reason: str) -> None:
    """The one who wrote the model reads it, and should not have to read this package to understand."""
    async with Agent(Lying(lies(*events)), tools=desk.tools()) as agent:
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == ("error", reason)
    assert desk.changed == []


@pytest.mark.parametrize("given", [None, [ends(Text(text="done"))]])
async def test_a_model_that_streams_nothing_to_wait_for_says_how_it_should(given: Any) -> None:
    async with Agent(Lying(lambda _: given)) as agent:
        result = await agent.run("x")
    assert result.turn_status == "error"
    assert result.reason.startswith(f"Lying.stream returned a {type(given).__name__}; it must return an async iterator of events.")
