"""Histories: always valid in every form, and repaired if they come from elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.agent import Agent, History
from callgate.agent.conversation_formats import fallback, from_native, native
from callgate.agent.history_repair import repair_history
from callgate.calls import Audio, Image, Suspended, Text, ToolResult
from callgate.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    fallback_result,
    openai_message,
)
from callgate.models.wire import codec, known_apis
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.result_order import order_results
from callgate.models.wire.tool_names import WireNames
from callgate.tools import Tool, ValidationResult, tool
from tests.agent.recording_tools import Board
from tests.agent.scripted_model import Script, call, says


async def conversation() -> list[Message]:
    """Return the history of a run with a call, a failure and an answer."""
    model = Script(
        says("I will look.", call("look", {"what": "a"}, id="1")),
        says(call("fail", {"why": "x"}, id="2"), call("look", {"what": "b"}, id="3", position=1)),
        says("Done."),
    )
    tools: list[Tool] = Board().tools()
    async with Agent(model, tools=tools) as agent:
        return list((await agent.run("Go.")).messages)


async def test_the_native_form_has_tool_calls_and_tool_messages() -> None:
    """Requirements C6, C8, C37, C71, C72."""
    items = native(await conversation())
    assert items[1] == {
        "role": "assistant",
        "content": "I will look.",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"what": "a"}'}}],
    }
    assert items[2] == {"role": "tool", "tool_call_id": "1", "content": '{"seen":"a"}'}
    assert items[3]["content"] is None
    assert [item["role"] for item in items] == ["user", "assistant", "tool", "assistant", "tool", "tool", "assistant"]


RESULTS: list[tuple[object, object]] = [
    ({"success": True, "location": "Town Square"}, {"success": True, "location": "Town Square"}),
    ({"success": True, "data": {"a": 1}}, {"success": True, "data": {"a": 1}}),
    ({"a": [1, 2]}, {"a": [1, 2]}),
    ([], []),
    (None, None),
    ("seen", "seen"),
    ({"success": False, "error": "no", "data": 3}, {"success": False, "error": "no", "data": 3}),
    (ValueError("no"), "tool_raised"),
]


@pytest.mark.parametrize(("value", "shown"), RESULTS)
@pytest.mark.parametrize("warned", [False, True])
async def test_a_result_has_the_same_text_in_an_agents_and_in_a_hosts_own_history(value: object, shown: object, warned: bool) -> None:
    """Requirements C72, C74: results are JSON. A tool's text stays text for models with tool calls, and is a JSON string for others."""

    @tool(name="look", effect="none", validate=lambda _: ValidationResult(valid=True, warnings=["odd"] if warned else []))
    def look() -> object:
        """Look."""
        if isinstance(value, Exception):
            raise value
        return value

    async with Agent(Script(says(call("look", {}, id="1")), says("Done.")), tools=[look]) as agent:
        done = await agent.run("Go.")
    (result,) = done.results
    (item,) = [item for item in native(done.messages) if item["role"] == "tool"]
    assert item == openai_message(result)
    told = fallback(done.messages)[2]
    assert isinstance(told, UserMessage)
    assert {"role": "user", "content": told.content} == fallback_result(result)
    head, written, *notes = str(told.content).split("\n")
    assert (head, notes) == ("[TOOL RESULT: look]", ["Note: odd"] if warned else [])
    assert item["content"] == "\n".join([str(value) if isinstance(value, str) else written, *notes])
    read = json.loads(written)
    assert (read if result.success else read["code"] if isinstance(value, Exception) else read["result"]) == shown


async def test_the_fallback_form_writes_calls_and_results_as_text() -> None:
    """Requirements C9, C38, C73, C74."""
    told = fallback(await conversation())
    assert [type(message) for message in told] == [UserMessage, *[AssistantMessage, UserMessage] * 3, AssistantMessage]
    asked, answer = told[1], told[2]
    assert isinstance(asked, AssistantMessage)
    assert json.loads(asked.text) == {"tool": "look", "parameters": {"what": "a"}, "reasoning": "I will look."}
    assert isinstance(answer, UserMessage)
    assert answer.content == '[TOOL RESULT: look]\n{"seen":"a"}'
    for message in told[2:7:2]:
        assert isinstance(message, UserMessage)
        head, _, body = str(message.content).partition("\n")
        assert head.startswith("[TOOL RESULT: ")
        json.loads(body)


@pytest.mark.parametrize("api", known_apis())
def test_the_fallback_form_names_images_and_audio_that_it_leaves_out(api: str) -> None:
    """No content is lost silently, whichever provider the fallback form is sent to."""
    content = (Text(text="Here."), Image(data="QUJD", mime_type="image/png"), Audio(data="REVG", mime_type="audio/wav"))
    history: list[Message] = [
        UserMessage("Go."),
        AssistantMessage(parts=(ToolCall(id="a", name="shoot"),)),
        ToolMessage(call_id="a", name="shoot", content=content),
    ]
    body = codec(api).encode(ModelRequest(model="m", messages=fallback(history)), WireNames(), {}).body.decode()
    assert ("[image/png: a picture, which is not shown here]" in body, "audio/wav" in body) == (True, True)


def test_non_text_parts_of_a_stored_history_are_replaced_by_their_type_name() -> None:
    stored = [
        {"type": "text", "text": "Look: "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "text"},
    ]
    assert from_native([{"role": "user", "content": stored}]) == [UserMessage("Look: [image_url, which is not taken over]")]


async def test_a_stored_native_history_round_trips() -> None:
    messages = await conversation()
    assert native(from_native(native(messages))) == native(messages)


def test_a_stored_custom_tool_call_round_trips() -> None:
    """The arguments of a custom tool are free text; the call and its result are both kept."""
    call = ToolCall(id="a", name="py", arguments="print(1)", custom=True)
    said: list[Message] = [AssistantMessage(parts=(call,)), ToolMessage(call_id="a", name="py", content=(Text(text="1"),), custom=True)]
    read = from_native(native(said))
    assert (native(read), read[0].calls if isinstance(read[0], AssistantMessage) else ()) == (native(said), (call,))
    assert read[1] == said[1]


@pytest.mark.parametrize("empty", [None, {}, {"name": "", "arguments": "", "input": ""}], ids=["null", "empty", "empty texts"])
def test_a_stored_call_is_the_filled_one_of_a_function_and_a_custom_call(empty: object) -> None:
    """Some servers and SDKs write both fields."""
    items = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "custom": empty},
        {"id": "b", "type": "custom", "custom": {"name": "py", "input": "print(1)"}, "function": empty},
    ]
    [message] = from_native([{"role": "assistant", "content": None, "tool_calls": items}])
    assert isinstance(message, AssistantMessage)
    assert message.calls == (ToolCall(id="a", name="f", arguments="{}"), ToolCall(id="b", name="py", arguments="print(1)", custom=True))


PARTS = st.sampled_from("abc").map(lambda name: ToolCall(id=name, name="f", arguments="{}"))
MESSAGES = st.lists(
    st.one_of(
        st.builds(UserMessage, st.sampled_from(["hi", ""])),
        st.builds(SystemMessage, st.just("be brief")),
        st.lists(PARTS | st.just(Text(text="x")) | st.just(Text(text="")), max_size=4).map(
            lambda parts: AssistantMessage(parts=tuple(parts))
        ),
        st.sampled_from("abcd").map(lambda name: ToolMessage(call_id=name, name="f", content=(Text(text=name),))),
    ),
    max_size=12,
)


def check_valid(messages: list[Message]) -> None:
    """Assert that each call has exactly one result, directly after its message and in the order of the calls."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert waiting
            assert message.call_id == waiting.pop(0)
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            assert message.parts
            waiting = [one.id for one in message.calls]
            assert not seen & set(waiting)
            assert len(set(waiting)) == len(waiting)
            seen |= set(waiting)
    assert not waiting


@given(MESSAGES)
def test_any_conversation_can_be_repaired_and_repair_is_idempotent(messages: list[Message]) -> None:
    mended, notes = repair_history(messages)
    check_valid(mended)
    assert repair_history(mended) == (mended, [])
    assert notes or mended == messages


def test_history_repair_reports_its_changes() -> None:
    asked = AssistantMessage(parts=(ToolCall(id="a", name="pay"), ToolCall(id="b", name="look")))
    mended, notes = repair_history([asked, ToolMessage(call_id="b", name="look"), ToolMessage(call_id="z", name="who")])
    assert [message.call_id for message in mended if isinstance(message, ToolMessage)] == ["a", "b"]
    lost = mended[1]
    assert isinstance(lost, ToolMessage)
    assert "not known" in lost.text
    assert any("'a' of pay had no result" in note for note in notes)
    assert any("'z'" in note for note in notes)


@given(MESSAGES)
def test_a_repaired_conversation_can_be_encoded_for_every_provider(messages: list[Message]) -> None:
    """Also after a change of provider in mid-conversation: items of one API do not break the requests of another."""
    mended, _ = repair_history([UserMessage("begin"), *messages, UserMessage("go on")])
    for api in known_apis():
        body: Any = json.loads(codec(api).encode(ModelRequest(model="m", messages=mended), WireNames(), {}).body)
        assert body


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abx"), min_size=1, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4)), max_size=6
    )
)
def test_a_history_is_valid_after_any_commits(turns: list[tuple[list[str], list[bool]]]) -> None:
    """Each committed call has exactly one result, whatever results are missing and whatever ids models choose."""
    history = History([UserMessage("begin")])
    for ids, had in turns:
        calls = tuple(ToolCall(id=one, name="f") for one in ids)
        results = [ToolResult(id=one, uid="u", name="f", status="ok") if keep else None for one, keep in zip(ids, had, strict=False)]
        history.commit(AssistantMessage(parts=calls), results)
    check_valid(history.messages)


MANY = 60_000
"""The number of calls with the same id. A search through all earlier calls for each one would not finish in the time of a test."""


def same_ids() -> list[Message]:
    calls = tuple(ToolCall(id="c", name="look", arguments="{}") for _ in range(MANY))
    return [AssistantMessage(parts=calls), *(ToolMessage(call_id="c", name="look") for _ in calls)]


def test_duplicate_call_ids_are_made_unique_in_linear_time() -> None:
    """Some servers give every call the same id; a long conversation with such calls is still written and repaired in linear time."""
    for mended in (repair_history(same_ids())[0], order_results(same_ids())):
        asked, *answers = mended
        assert isinstance(asked, AssistantMessage)
        ids = [call.id for call in asked.calls]
        assert len(set(ids)) == MANY
        assert [answer.call_id for answer in answers if isinstance(answer, ToolMessage)] == ids


def test_suffixes_for_duplicate_call_ids_skip_ids_that_are_in_use() -> None:
    ids = ["c", "c_2", "c", "c", "c-2", "c"]
    messages: list[Message] = [AssistantMessage(parts=tuple(ToolCall(id=one, name="look", arguments="{}") for one in ids))]
    (asked, *_), (written, *_) = repair_history(messages)[0], order_results(messages)
    assert isinstance(asked, AssistantMessage)
    assert isinstance(written, AssistantMessage)
    assert [call.id for call in asked.calls] == ["c", "c_2", "c-2", "c-3", "c-2-2", "c-4"]
    assert [call.id for call in written.calls] == ["c", "c_2", "c_3", "c_4", "c-2", "c_5"]


def test_a_duplicate_tool_result_becomes_a_user_message() -> None:
    result = ToolMessage(call_id="c", name="look", content=(Text(text="seen"),))
    placed = order_results([AssistantMessage(parts=(ToolCall(id="c", name="look", arguments="{}"),)), result, UserMessage("So?"), result])
    assert [type(message) for message in placed] == [AssistantMessage, ToolMessage, UserMessage, UserMessage]


def test_call_ids_of_a_rewritten_conversation_are_not_reused() -> None:
    """A conversation that is restored from the journal must number calls as the original one did."""
    brought = History()
    brought.commit(AssistantMessage(parts=(ToolCall(id="a", name="f"),)), [ToolResult(id="a", uid="u", name="f", status="ok")])
    history = History()
    history.rewrite(brought.messages)
    history.commit(AssistantMessage(parts=(ToolCall(id="a", name="f"),)), [ToolResult(id="a", uid="v", name="f", status="ok")])
    assert [message.call_id for message in history.messages if isinstance(message, ToolMessage)] == ["a", "a-2"]


def test_every_call_with_a_repeated_id_gets_a_unique_id() -> None:
    """Requirement C37: each call has its own id, also if a server restarts its numbering in every answer."""
    history = History([AssistantMessage(parts=(ToolCall(id="call_0-3", name="look", arguments="{}"),))])
    result = ToolResult(id="", uid="", name="look", status="ok", content=(Text(text="seen"),))
    for _ in range(20_000):
        history.commit(AssistantMessage(parts=(ToolCall(id="call_0", name="look", arguments="{}"),)), [result])
    ids = [message.call_id for message in history.messages if isinstance(message, ToolMessage)]
    assert len(set(ids)) == 20_000
    assert ids[:4] == ["call_0", "call_0-2", "call_0-4", "call_0-5"]


def _asked(*ids: str) -> AssistantMessage:
    return AssistantMessage(parts=(Text(text="I look."), *(ToolCall(id=one, name="look", arguments="{}") for one in ids)))


def _seen(text: str) -> ToolResult:
    return ToolResult(id="", uid="", name="look", status="ok", content=(Text(text=text),))


WAITS = Suspended(approval_id="q", expires_at=0)


def _paired(messages: list[Message]) -> list[tuple[str, str]]:
    """Return each call's id with the text of its result."""
    asked = [call.id for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
    texts = {
        message.call_id: "".join(part.text for part in message.content if isinstance(part, Text))
        for message in messages
        if isinstance(message, ToolMessage)
    }
    return [(one, texts[one]) for one in asked]


def test_a_waiting_call_that_ends_without_a_result_is_removed_and_the_others_stay() -> None:
    history = History([UserMessage("begin")])
    before = history.commit(_asked("a", "b", "c"), [_seen("A"), WAITS, WAITS])
    history.user("And then?")
    after = history.complete(before, [_seen("B"), None])
    assert _paired(history.messages) == [("a", "A"), ("b", "B")]
    assert [type(message) for message in history.messages] == [UserMessage, AssistantMessage, ToolMessage, ToolMessage, UserMessage]
    assert (after.ids, after.waiting, len(after.answered)) == (("a", "b", ""), (), 2)


def test_a_message_whose_only_call_is_removed_is_removed_too() -> None:
    history = History([UserMessage("begin")])
    before = history.commit(AssistantMessage(parts=(ToolCall(id="a", name="look", arguments="{}"),)), [WAITS])
    history.complete(before, [None])
    assert history.messages == [UserMessage("begin")]


def test_a_message_whose_waiting_call_was_compacted_away_is_committed_again_once() -> None:
    history = History([UserMessage("begin")])
    before = history.commit(_asked("a", "b"), [_seen("A"), WAITS])
    history.rewrite([UserMessage("begin"), _asked("a"), ToolMessage(call_id="a", name="look", content=(Text(text="A"),))])
    history.complete(before, [_seen("B")])
    assert [text for _, text in _paired(history.messages)] == ["A", "B"]
    check_valid(history.messages)
