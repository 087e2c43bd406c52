"""Calls in plain text: a model without native calls works like any other."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callgate import Engine, Limits
from callgate.agent import Agent, Budget, RunResult, Settings, text_call_model
from callgate.calls import Text
from callgate.messages import AssistantMessage, Native, Reasoning, SystemMessage, UserMessage
from callgate.models.dialects import python_calls
from callgate.models.dialects.python_literals import parse_keyword_arguments
from callgate.models.model_events import Finished, ModelEvent, ReasoningDelta, TextDelta
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.testing import ManualClock
from tests.agent.recording_tools import Board
from tests.agent.scripted_model import Answer, Script, call, says
from tests.engine_calls import bodies

ASKED = json.dumps({"tool": "look", "parameters": {"what": "a"}, "reasoning": "I have to see it."})


class Recorder(Script):
    """A model without native calls."""

    native_tools = False


def letters(text: str) -> Answer:
    """Return a text with one event per letter."""
    end = Finished(reason="stop", message=AssistantMessage(parts=(Text(text=text),), api="scripted"))
    return [*(TextDelta(letter) for letter in text), end]


async def run(*answers: Any, model: type[Script] = Recorder, **options: Any) -> tuple[RunResult, Script, Board]:
    board, script = Board(), model(*answers)
    async with Agent(script, tools=board.tools(), **options) as agent:
        return await agent.run("Do it."), script, board


@pytest.mark.parametrize("text", ["It is a.", "Is a < b? {", "a\n```", "See <", 'It is {"tool": ', "[", "a `b"])
@pytest.mark.parametrize("whole", [True, False], ids=["at once", "by letters"])
async def test_text_events_contain_the_whole_answer_to_its_last_character(text: str, whole: bool) -> None:
    """Also if the end of the text looks like the start of a call."""
    told: list[str] = []
    end = Finished(reason="stop", message=AssistantMessage(parts=(Text(text=text),), api="scripted"))
    answer: Answer = [TextDelta(text), end] if whole else letters(text)

    def hear(event: object) -> None:
        if isinstance(event, TextDelta):
            told.append(event.text)

    async with Agent(Recorder(answer), tools=Board().tools()) as agent:
        result = await agent.run("Do it.", on_event=hear)
    assert ("".join(told), result.text) == (text, text)


LIFTED = [
    '{"tool": "look", "parameters": {}, "what": "a", "reasoning": "it may rain"}',
    '<tool_call>{"tool": "look", "what": "a", "reasoning": "it may rain"}</tool_call>',
]


@pytest.mark.parametrize("text", LIFTED, ids=["bare", "in tags"])
async def test_top_level_parameters_and_reasoning_of_a_text_call_are_kept_and_logged(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """As for a call that a host passes as a dict: its reasoning is kept, and a note says that its parameters were at the top level."""
    board, model = Board(), Recorder(letters(text), letters("It is a."))
    async with Agent(model, tools=board.tools()) as agent:
        with caplog.at_level(logging.INFO, logger="callgate"):
            result = await agent.run("Do it.")
        received = bodies(agent.engine, "call.received")
    (seen,) = result.results
    assert (board.done, [note.kind for note in seen.metadata.notes]) == (["look a"], ["lifted"])
    assert [body["reasoning"] for body in received] == ["it may rain"]
    told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert (logging.INFO, "Tool call: look - it may rain") in told
    assert [level for level, line in told if "top level" in line] == [logging.WARNING]
    asked = model.seen[1][2]
    assert isinstance(asked, AssistantMessage)
    assert json.loads(asked.text) == {"tool": "look", "parameters": {"what": "a"}, "reasoning": "it may rain"}


async def test_a_text_call_runs_and_its_result_is_sent_as_text() -> None:
    """Requirements E5, E6, C9, C38, C73, C74: the call is strict JSON in the form that the system prompt asks for."""
    result, model, board = await run(letters(f"Let me see.\n{ASKED}"), letters("It is a."))
    assert (result.status, result.text, board.done) == ("completed", "It is a.", ["look a"])
    first, second = model.seen
    assert isinstance(first[0], SystemMessage)
    assert '{"tool": "<name>", "parameters": {...}' in first[0].text
    assert '"name"' not in first[0].text
    assert '{"tool":"look"' in first[0].text
    assert model.requests[0].tools == ()
    asked, answer = second[2:]
    assert isinstance(asked, AssistantMessage)
    assert json.loads(asked.text) == {"tool": "look", "parameters": {"what": "a"}, "reasoning": "Let me see.\nI have to see it."}
    assert isinstance(answer, UserMessage)
    assert answer.content == '[TOOL RESULT: look]\n{"seen":"a"}'


async def test_the_visible_text_does_not_contain_the_call() -> None:
    result, _, _ = await run(letters(f"Let me see.\n{ASKED}"), letters("Done."), settings=Settings(budget=Budget(iterations=0)))
    assert result.text.strip() == "Let me see."


@pytest.mark.parametrize(
    "text",
    [
        "You could call look with what=a.",
        f"To call it, one writes `{ASKED[:30]}` and so on.",
        '{"answer": {"tool": "hammer", "size": 3}}',
        ASKED[:-10],
    ],
    ids=["a mention", "a piece of one", "a JSON answer", "cut off"],
)
async def test_text_that_is_not_a_complete_call_stays_text(text: str) -> None:
    result, _, board = await run(letters(text))
    assert (result.status, result.text, board.done) == ("completed", text, [])


UNKNOWN = [
    '{"tool": "gaze", "parameters": {}}',
    'I try.\n{"tool": "gaze", "parameters": {"at": "sky"}, "reasoning": "r"}',
    '```json\n{"reasoning": "r", "tool": "gaze", "arguments": {}}\n```',
]


@pytest.mark.parametrize("model", [Recorder, Script], ids=["taught", "fallback"])
@pytest.mark.parametrize("text", UNKNOWN)
async def test_a_call_of_an_unknown_tool_in_the_prompted_form_is_a_failure(text: str, model: type[Script]) -> None:
    """Requirement E12: the model gets a result with the known tool names; in strict mode the run ends."""
    result, script, _ = await run(letters(text), letters("Sorry."), model=model, text_calls="fallback")
    assert (result.text, [one.failure_class for one in result.results]) == ("Sorry.", ["unknown_tool"])
    assert "look" in str(script.seen[1][-1])
    result, _, _ = await run(letters(text), model=model, text_calls="fallback", preset="worker")
    assert (result.turn_status, [one.failure_class for one in result.results]) == ("tool_parse_error", ["unknown_tool"])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "gaze", "arguments": {}}',
        '{"tool": "gaze"}',
        '{"tool": "gaze", "at": "sky"}',
        '{"tool": "gaze", "parameters": {}, "price": 5}',
        '{"tools": [{"tool": "gaze", "parameters": {}}]}',
        'Such as {"tool": "gaze", "parameters": {}}.',
        'For example:\n{"tool": "gaze", "parameters": {}}',
        '{"tool": "gaze", "parameters": "none"}',
    ],
)
async def test_json_of_an_unknown_tool_that_deviates_from_the_prompted_form_stays_text(text: str) -> None:
    """Such JSON may be the answer itself."""
    result, _, _ = await run(letters(text))
    assert (result.status, result.text, result.results) == ("completed", text, ())


NOT_STRICT = [
    "{'tool': 'look', 'parameters': {'what': 'a'}}",
    '{"tool": "look", "parameters": {"what": "a"},}',
    '{"tool": "look", "parameters": {"what": "a",}}',
    '{"tool": "look", "parameters": {"what": NaN}}',
]


@pytest.mark.parametrize("model", [Recorder, Script], ids=["taught", "fallback"])
@pytest.mark.parametrize("text", NOT_STRICT)
async def test_a_text_call_that_is_not_strict_json_fails_and_never_runs(text: str, model: type[Script]) -> None:
    """Requirements E6, E10: the system text asks for strict JSON."""
    result, script, board = await run(letters(text), letters("Sorry."), model=model, text_calls="fallback")
    assert (result.text, board.done, [one.failure_class for one in result.results]) == ("Sorry.", [], ["malformed_arguments"])
    head = script.seen[0][0]
    assert isinstance(head, SystemMessage)
    assert "It must be strict JSON: double quotes, no comments, no trailing commas." in head.text
    assert '{"tool": "<name>", "parameters": {...}' in head.text


NO_OBJECT = ['"a"', '["a"]', "5", "true"]


@pytest.mark.parametrize("model", [Recorder, Script], ids=["taught", "fallback"])
@pytest.mark.parametrize("parameters", NO_OBJECT)
async def test_a_text_call_whose_parameters_are_not_an_object_fails_and_never_runs(parameters: str, model: type[Script]) -> None:
    """Requirement E10: a call of a known tool in the prompted form is never treated as the answer."""
    text = f'{{"tool": "look", "parameters": {parameters}, "reasoning": "r"}}'
    result, _, board = await run(letters(text), letters("Sorry."), model=model, text_calls="fallback")
    assert (result.text, board.done, [one.failure_class for one in result.results]) == ("Sorry.", [], ["malformed_arguments"])
    result, _, _ = await run(letters(text), model=model, text_calls="fallback", preset="worker")
    assert (result.turn_status, [one.failure_class for one in result.results]) == ("tool_parse_error", ["malformed_arguments"])


OTHER_FORMS = ['look(what="a")', '[look(what="a")]', 'Action: look\nAction Input: {"what": "a"}', '{tool: "look", parameters: {what: "a"}}']


@pytest.mark.parametrize("text", OTHER_FORMS)
async def test_the_fallback_reads_no_unmarked_form_other_than_the_prompted_one(text: str) -> None:
    """Requirement E6: other forms are part of the answer, unless the host names a dialect that has them."""
    result, _, board = await run(letters(text))
    assert (result.text, board.done) == (text, [])
    result, _, board = await run(letters(OTHER_FORMS[1]), letters("Done."), dialect="pythonic")
    assert (result.text, board.done) == ("Done.", ["look a"])


async def test_calls_with_the_markers_of_a_model_family_are_recognised() -> None:
    text = '<tool_call>{"name": "look", "arguments": {"what": "a"}}</tool_call>'
    result, _, board = await run(letters(text), letters("Done."))
    assert (result.text, board.done) == ("Done.", ["look a"])


async def test_an_exit_call_in_text_is_recorded_as_a_signal() -> None:
    text = 'All done.\n{"tool": "done", "parameters": {"how": "well"}}'
    result, _, _ = await run(letters(text), exit_tools=[ToolSpec(name="done")])
    assert [(one.name, one.arguments) for one in result.signals] == [("done", {"how": "well"})]
    assert result.status == "completed"


async def test_a_model_with_native_calls_can_fall_back_to_text_calls() -> None:
    """Requirement E5: for models without reliable native calls. If a message has native calls, its text is not read for calls."""
    result, model, board = await run(letters(ASKED), letters("Done."), model=Script, text_calls="fallback")
    assert (result.status, board.done) == ("completed", ["look a"])
    assert model.requests[0].tools
    both = says(ASKED, call("look", {"what": "b"}, id="1"))
    result, _, board = await run(both, letters("Done."), model=Script, text_calls="fallback")
    assert board.done == ["look b"]
    result, _, board = await run(letters(ASKED), model=Script)
    assert (result.text, board.done) == (ASKED, [])


class Plain(Script):
    """A model whose stream is a plain async iterator that cannot be closed."""

    def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        return Events(super().stream(request, context))


class Events:
    """An async iterator without further methods."""

    def __init__(self, events: AsyncIterator[ModelEvent]) -> None:
        self._events = events

    def __aiter__(self) -> AsyncIterator[ModelEvent]:
        return self

    async def __anext__(self) -> ModelEvent:
        return await self._events.__anext__()


async def test_text_calls_are_read_from_a_finished_message_without_text_events() -> None:
    """A model's events end with the whole message, and the stream may be any async iterator."""
    result, _, board = await run(letters(ASKED)[-1:], letters("Done.")[-1:], model=Plain, text_calls="fallback")
    assert (result.status, result.text, board.done) == ("completed", "Done.", ["look a"])


SIGNED = (Reasoning(text="Hm.", opaque={"signature": "s"}), Native(kind="search", id="1", item={"type": "search"}))


@pytest.mark.parametrize(("text", "rest"), [("It is a.", ()), (f"I look.\n{ASKED}", letters("Done."))], ids=["an answer", "a call"])
async def test_reasoning_and_native_parts_are_kept_when_text_is_read_for_calls(text: str, rest: Answer) -> None:
    """Providers need their signatures and the parts of their own tools in the next request."""
    answer = Finished(reason="stop", message=AssistantMessage(parts=(*SIGNED, Text(text=text)), api="scripted"))
    result, _, _ = await run(
        [ReasoningDelta("Hm."), TextDelta(text), answer], *([rest] if rest else ()), model=Script, text_calls="fallback"
    )
    kept = result.messages[1]
    assert isinstance(kept, AssistantMessage)
    assert (kept.parts[:2], kept.text.strip(), len(kept.calls)) == (SIGNED, text.partition("\n")[0], len(rest) > 0)


async def test_the_system_text_states_the_iterations_left_and_is_rebuilt_for_every_pass() -> None:
    """The text has the version, the time, the remaining iterations, the rules of tools and the exit tools."""
    board, model = Board(), Script(says(call("look", {"what": "a"})), says("Done."))
    async with Engine(board.tools(), clock=ManualClock()) as engine:
        agent = Agent(model, engine, preset="worker", instructions="You are a clerk.", exit_tools=[ToolSpec(name="done")])
        await agent.run("Go.")
    heads = [seen[0].text for seen in model.seen if isinstance(seen[0], SystemMessage)]
    assert ["left: 8" in heads[0], "left: 7" in heads[1]] == [True, True]
    assert heads[0].startswith("callgate ")
    assert "UTC" in heads[0]
    assert "done" in heads[0]
    assert heads[0].endswith("You are a clerk.")


@pytest.mark.parametrize(
    "text",
    [
        f"[TOOL RESULT: look]\n{ASKED}",
        f"It said:\n[tool result: look]\nsome text\n\n{ASKED}\n",
        f"<tool_response>\n{ASKED}\n</tool_response>\nI do not follow that.",
        f"<tool_response>\nread this:\n```json\n{ASKED}\n```\n</tool_response>",
        '<tool_response>\n<tool_call>{"name": "look", "arguments": {"what": "a"}}</tool_call>\n</tool_response>',
    ],
)
@pytest.mark.parametrize("whole", [False, True])
async def test_a_tool_result_repeated_by_the_model_is_not_read_for_calls(text: str, whole: bool) -> None:
    """Text of a tool's result is not a request of the model, even if the model repeats it."""
    answer = says(text) if whole else letters(text)
    result, _, board = await run(answer)
    assert (result.turn_status, board.done) == ("completed", [])
    assert '"look"' in result.text


async def test_a_call_after_a_tool_result_repeated_by_the_model_is_a_call() -> None:
    text = f"<tool_response>\n{ASKED}\n</tool_response>\nSo I look again.\n{ASKED}"
    result, _, board = await run(letters(text), says("Done."))
    assert (result.text, board.done) == ("Done.", ["look a"])


async def test_a_text_with_more_calls_than_calls_per_message_fails_the_run() -> None:
    """The limit is the same as for native calls."""
    engine = Engine(limits=Limits(calls_per_message=3))
    board, script = Board(), Recorder(letters(f"{ASKED}\n" * 5))
    for tool in board.tools():
        engine.tools.register(tool)
    async with engine, Agent(script, engine) as agent:
        result = await agent.run("Do it.")
    assert (result.status, board.done) == ("failed", [])
    assert "too_many_calls" in result.reason


ROWS = "[" + ", ".join(["{'n': 1}"] * 30_000) + "]"
LARGE = f"[look(what={ROWS})]"
"""A call in Python syntax that takes long to parse."""


@pytest.fixture
def threads_that_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the thread that parses each large call."""
    read: list[int] = []

    def noted(text: str) -> tuple[list[str], dict[str, str]]:
        if len(text) > 10_000:
            read.append(threading.get_ident())
        return parse_keyword_arguments(text)

    monkeypatch.setattr(python_calls, "parse_keyword_arguments", noted)
    return read


def pieces(text: str, size: int) -> Answer:
    end = Finished(reason="stop", message=AssistantMessage(parts=(Text(text=text),), api="scripted"))
    return [*(TextDelta(text[start : start + size]) for start in range(0, len(text), size)), end]


@pytest.mark.parametrize("size", [7, 10_000, len(LARGE)])
@pytest.mark.parametrize("model", [Recorder, Script])
async def test_a_large_text_call_is_parsed_off_the_event_loop(
    size: int, model: type[Script], threads_that_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of threads used must not grow with the number of events."""
    hops = 0
    in_thread = vars(text_call_model)["in_thread"]

    async def counted(work: Callable[[], Any]) -> Any:
        nonlocal hops
        hops += 1
        return await in_thread(work)

    monkeypatch.setattr(text_call_model, "in_thread", counted)
    answer = pieces(f"I look.\n{LARGE}", size)
    result, _, _ = await run(
        answer, letters("Done."), model=model, text_calls="auto" if model is Recorder else "fallback", dialect="pythonic"
    )
    assert result.text == "Done."
    assert [one.name for one in result.results] == ["look"]
    assert threads_that_read
    assert threading.get_ident() not in threads_that_read
    assert hops <= 4 * len(LARGE) // 32_768 + 8
