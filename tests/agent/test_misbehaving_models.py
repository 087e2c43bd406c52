"""Models that break the protocol with their ends, calls or errors; the loop keeps its guarantees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from callgate.agent import Agent, Budget, Settings
from callgate.calls import Text
from callgate.messages import AssistantMessage, ToolCall
from callgate.models.model_events import CallReopened, CallSealed, Finished, ModelEvent, TextDelta, Usage
from callgate.models.model_protocol import StreamingContext
from tests.agent.misbehaving_model import Lying, done, lies
from tests.agent.recording_tools import RecordingTools
from tests.agent.scripted_model import Script, call, ends, says


async def test_a_stream_that_hangs_after_its_finished_event_is_closed() -> None:
    """Requirements B2, B18: the message is complete, so nothing waits for what the model does afterwards."""
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


async def test_a_stream_that_hangs_while_closing_can_be_killed() -> None:
    """Requirements B17, B18: a kill unblocks a pass at every moment, also while the model closes its connection."""
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
    """A stream whose events end normally and whose `aclose` raises."""

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
async def test_a_finished_message_is_kept_if_closing_the_stream_fails(events: Sequence[ModelEvent], reason: str) -> None:
    """An error after the last event does not change the message."""
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
async def test_any_exception_of_a_model_ends_the_run_with_a_readable_reason(error: Exception, reason: str) -> None:
    """`run` never raises for an error of the model, and the reason is readable."""
    async with Agent(Script([error])) as agent:
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == ("error", reason)


async def test_events_after_the_finished_event_are_ignored() -> None:
    """The first `Finished` ends the message, whatever follows."""
    answer = lies(TextDelta("a"), ends(Text(text="a")), TextDelta("b"), ends(Text(text="b")))
    async with Agent(Lying(answer)) as agent:
        result = await agent.run("x")
    assert (result.text, len(result.messages)) == ("a", 2)


async def test_an_unsealed_call_runs_only_if_its_message_ends_normally(recording: RecordingTools) -> None:
    """A model may report its calls only with the whole message. They run if the message ends normally, and do not if it was cut."""
    answers = [lies(ends(call("change", {"what": "x"}))), done]
    async with Agent(Lying(*answers), tools=recording.tools()) as agent:
        assert (await agent.run("x")).completed
    assert recording.changed == ["x"]
    answers = [lies(ends(call("change", {"what": "cut"}), reason="length")), done]
    async with Agent(Lying(*answers), tools=recording.tools()) as agent:
        result = await agent.run("x")
    assert recording.changed == ["x"]
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
async def test_only_the_calls_of_the_finished_message_take_effect(recording: RecordingTools, events: list[ModelEvent]) -> None:
    """Requirement D1: only calls of the finished message count; a call that was sealed earlier and is not in it has no effect."""
    async with Agent(Lying(lies(*events), done), tools=recording.tools()) as agent:
        result = await agent.run("x")
    assert recording.changed == ["new"]
    assert [each.text for each in result.results] == ["saw a", "changed new"]
    assert result.spent.calls == 2


async def test_a_reopened_call_counts_once_against_the_call_budget(recording: RecordingTools) -> None:
    """Requirement E3: the call budget counts calls, not the versions of a call."""
    old, new = call("look", {"what": "old"}, id="b"), call("look", {"what": "new"}, id="b")
    answer = lies(CallSealed(0, old), CallReopened(0), CallSealed(0, new, "finished"), ends(new))
    settings = Settings(budget=Budget(calls=1))
    async with Agent(Lying(answer, done), tools=recording.tools(), settings=settings) as agent:
        result = await agent.run("x")
    assert [each.text for each in result.results] == ["saw new"]
    assert result.spent.calls == 1


async def test_an_answer_cut_by_a_content_filter_has_that_as_its_reason() -> None:
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
async def test_an_invalid_model_event_fails_the_run_and_names_the_expected_type(
    recording: RecordingTools, events: list[ModelEvent], reason: str
) -> None:
    """The author of the model reads the message, and understands it without reading this package."""
    async with Agent(Lying(lies(*events)), tools=recording.tools()) as agent:
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == ("error", reason)
    assert recording.changed == []


@pytest.mark.parametrize("given", [None, [ends(Text(text="done"))]])
async def test_a_stream_method_that_returns_no_async_iterator_fails_the_run_with_advice(given: Any) -> None:
    async with Agent(Lying(lambda _: given)) as agent:
        result = await agent.run("x")
    assert result.turn_status == "error"
    assert result.reason.startswith(f"Lying.stream returned a {type(given).__name__}; it must return an async iterator of events.")
