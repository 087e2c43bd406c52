"""Properties of all encoders for any conversation: the request is JSON, and every call in it has a result."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callgate.calls import Audio, Link, Resource, Text
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage
from callgate.models.wire import codec, known_apis
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.tool_names import WireNames
from tests.models.sample_conversation import PICTURE, TOOLS

APIS = known_apis()
TURNS = ("anthropic.messages", "bedrock.converse", "bedrock.invoke")
"""APIs that refuse two consecutive turns of the same role."""

words = st.sampled_from(["", " ", "\n", "Hello.", "ünï \ud800 \x00"])
ids = st.sampled_from(["a", "b", "call|1", "x" * 90])
names = st.sampled_from(["find", "shot", "files/read", "é"])
parts = st.one_of(
    st.builds(lambda text: Text(text=text), words),
    st.just(PICTURE),
    st.just(Audio(data="aGk=", mime_type="audio/wav")),
    st.just(Link(uri="file:///x", name="x")),
    st.just(Resource(resource={"uri": "x", "text": "y"})),
)
arguments = st.sampled_from(["", "{}", '{"q": 1}', '{"q": ', "[1]", "null", '"\ud800"', '{"q": "\\ud800"}'])
said = st.one_of(
    st.builds(lambda text: Text(text=text), words),
    st.builds(lambda text: Reasoning(text=text), words),
    st.builds(lambda call_id, name, text: ToolCall(id=call_id, name=name, arguments=text), ids, names, arguments),
    st.builds(lambda call_id, text: ToolCall(id=call_id, name="py", arguments=text, custom=True), ids, words),
    st.just(Native(kind="search", item={"type": "search"})),
)
messages = st.one_of(
    st.builds(SystemMessage, words),
    st.builds(UserMessage, words | st.lists(parts, max_size=3).map(tuple)),
    st.builds(
        lambda found, api: AssistantMessage(parts=tuple(found), api=api), st.lists(said, max_size=4), st.sampled_from(["", "another"])
    ),
    st.builds(
        lambda call_id, name, found, failed: ToolMessage(call_id=call_id, name=name, content=tuple(found), is_error=failed),
        ids, names, st.lists(parts, max_size=2), st.booleans(),
    ),
)  # fmt: skip
talks = st.lists(messages, min_size=1, max_size=8)


def body_of(api: str, talk: list[Message], choice: str = "auto") -> dict[str, Any]:
    request = ModelRequest(model="m", messages=talk, tools=TOOLS if choice else (), tool_choice=choice or "auto")
    body = json.loads(codec(api).encode(request, WireNames(), {}).body)
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize("api", APIS)
@given(talks, st.sampled_from(["auto", "none", "required", "find", ""]))
def test_every_conversation_can_be_encoded(api: str, talk: list[Message], choice: str) -> None:
    """Whatever it contains: malformed arguments, lone surrogates, misplaced results, or nothing at all."""
    assert body_of(api, talk, choice)


def blocks_of(turn: dict[str, Any]) -> Iterable[dict[str, Any]]:
    content = turn["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@pytest.mark.parametrize("api", TURNS)
@given(talks)
def test_turns_alternate_and_are_never_empty(api: str, talk: list[Message]) -> None:
    turns = body_of(api, talk)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"] * (len(turns) % 2)
    assert all(blocks_of(turn) for turn in turns)
    assert all(str(block["text"]).strip() for turn in turns for block in blocks_of(turn) if "text" in block)


@pytest.mark.parametrize("api", TURNS)
@given(talks)
def test_results_come_first_in_the_turn_after_their_calls(api: str, talk: list[Message]) -> None:
    """The turn has a result for each call, exactly once, and no other result."""
    turns = body_of(api, talk)["messages"]
    for before, turn in zip([None, *turns], turns, strict=False):
        kinds = [_result(block) for block in blocks_of(turn)]
        results = [found for found in kinds if found]
        assert kinds[: len(results)] == results
        assert sorted(results) == sorted(_calls(before) if before else [])
    assert not _calls(turns[-1])


@pytest.mark.parametrize("api", TURNS)
@given(talks)
def test_call_ids_are_unique_in_a_request(api: str, talk: list[Message]) -> None:
    """Some servers restart the numbering of calls in every answer."""
    found = [call_id for turn in body_of(api, talk)["messages"] for call_id in _calls(turn)]
    assert len(set(found)) == len(found)


@given(talks)
def test_gemini_function_responses_are_named_as_their_calls(talk: list[Message]) -> None:
    """In the history of a host, the name of a result may be another or missing."""
    contents = body_of("gemini.generate", talk)["contents"]
    assert contents[0]["role"] == "user"
    assert all(content["parts"] for content in contents)
    for content, following in zip(contents, [*contents[1:], {"parts": []}], strict=True):
        called = [part["functionCall"]["name"] for part in content["parts"] if "functionCall" in part]
        given_back = [part["functionResponse"]["name"] for part in following["parts"] if "functionResponse" in part]
        assert called == given_back


@example([AssistantMessage(parts=(ToolCall(id="a", name="py", arguments="1", custom=True),)), ToolMessage(call_id="a", name="")])
@given(talks)
def test_an_output_item_has_the_kind_of_its_call(talk: list[Message]) -> None:
    """The responses API refuses the output of a function as the result of a custom tool call."""
    kinds: dict[str, str] = {}
    for item in body_of("openai.responses", talk)["input"]:
        if item["type"].endswith("_call"):
            kinds[item["call_id"]] = item["type"]
        elif item["type"].endswith("_output"):
            assert f"{kinds.pop(item['call_id'])}_output" == item["type"]
    assert not kinds


def _calls(turn: dict[str, Any]) -> list[str]:
    found = [block.get("toolUse", block if block.get("type") == "tool_use" else None) for block in blocks_of(turn)]
    return [call.get("toolUseId") or call.get("id") for call in found if call]


def _result(block: dict[str, Any]) -> str:
    result = block.get("toolResult", block)
    return str(result.get("toolUseId") or result.get("tool_use_id") or "")


def failed_results(turn: dict[str, Any]) -> Iterable[list[dict[str, Any]]]:
    """Yield the content blocks of each failed result of a turn."""
    for block in turn["content"]:
        result = block.get("toolResult", block)
        if result.get("is_error") or result.get("status") == "error":
            yield list(blocks_of(result))


@pytest.mark.parametrize("api", TURNS)
@given(talks)
@example([AssistantMessage(parts=(ToolCall(id="a", name="f"),)), ToolMessage(call_id="a", name="f", content=(PICTURE,), is_error=True)])
@example([AssistantMessage(parts=(ToolCall(id="a", name="f"),)), ToolMessage(call_id="a", name="f", content=(), is_error=True)])
def test_a_failed_result_contains_only_text_and_its_images_follow(api: str, talk: list[Message]) -> None:
    """Anthropic refuses the whole conversation if one failed result is empty or contains an image."""
    for turn in body_of(api, talk)["messages"]:
        for blocks in failed_results(turn):
            assert all(block.get("type", "text") == "text" and block["text"].strip() for block in blocks)
            assert blocks
    calls = [call.id for message in talk if isinstance(message, AssistantMessage) for call in message.calls]
    shown = [part for message in talk if isinstance(message, ToolMessage) and message.call_id in calls for part in message.content]
    assert json.dumps(body_of(api, talk)).count(PICTURE.data) >= sum(part == PICTURE for part in shown)
