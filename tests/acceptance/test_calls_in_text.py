"""Tests of calls in plain text, for models without structured tool calls: text is parsed into calls, and history is text again."""

from __future__ import annotations

import json

import pytest

from callgate import Engine, RawCall, tool
from callgate.messages import fallback_call, fallback_result
from callgate.models.dialects import FoundCall, read_text
from tests.engine_calls import said


@tool
def look(at: str) -> dict[str, str]:
    """Look."""
    return {"seen": at}


SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
WRITTEN = [
    '{"tool": "look", "parameters": {"at": "sky"}, "reasoning": "it may rain"}',
    'I look.\n```json\n{"tool": "look", "arguments": {"at": "sky"}, "reasoning": "it may rain"}\n```',
]


def only_call(text: str) -> FoundCall:
    (found,) = read_text(text, {"look": SCHEMA}).calls
    return found


def as_raw(found: FoundCall) -> RawCall:
    return RawCall(name=found.name, arguments=found.arguments, closed=found.closed)


@pytest.mark.parametrize("text", WRITTEN, ids=["bare", "fenced"])
async def test_a_strict_json_object_in_text_is_a_call(text: str) -> None:
    """The fallback format is a JSON object in the assistant message's content, as the system prompt asks for."""
    found = only_call(text)
    async with Engine([look]) as engine:
        result = await said(engine, as_raw(found))
    assert result.data == {"seen": "sky"}
    assert found.reasoning == "it may rain"


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "look", "parameters": {}, "at": "sky"}',
        '{"tool": "look", "at": "sky", "reasoning": "r"}',
        '{"tool": "look", "parameters": null, "at": "sky"}',
    ],
)
async def test_parameters_beside_empty_ones_are_read_from_text(text: str) -> None:
    """Models sometimes send an empty parameters object next to the real parameters."""
    async with Engine([look]) as engine:
        assert (await said(engine, as_raw(only_call(text)))).data == {"seen": "sky"}


@pytest.mark.parametrize(
    "text",
    ['{"tool": "look", "for": "rain"}', '{"tool": "look"}', '{"tool": "look", "at": "sky", "for": 1}', '{"tool": "gaze", "at": "sky"}'],
)
def test_an_object_that_does_not_match_the_schema_is_not_a_call(text: str) -> None:
    """JSON that names a tool may only mention it, so it counts as a call only if its parameters match the schema."""
    assert read_text(text, {"look": SCHEMA}).calls == ()
    assert read_text(text, {"look": None}).calls == ()


def test_a_tool_without_parameters_needs_none_in_text() -> None:
    nothing = {"type": "object", "properties": {}}
    (found,) = read_text('{"tool": "look"}', {"look": nothing}).calls
    assert found.arguments == "{}"


@pytest.mark.parametrize("text", ['{"tool": "look", "parameters": {"at": "s', '{"tool": look, parameters: at the sky}'])
def test_text_that_is_not_strict_json_is_not_a_call(text: str) -> None:
    """Truncated or invalid JSON is treated as an answer, not repaired into a call."""
    assert read_text(text, {"look": SCHEMA}).calls == ()


async def test_fallback_history_has_the_call_as_json_and_the_result_as_a_user_message() -> None:
    found = only_call(WRITTEN[0])
    async with Engine([look]) as engine:
        result = await said(engine, as_raw(found))
    spoken, answered = fallback_call(as_raw(found), found.reasoning), fallback_result(result)
    assert spoken["role"] == "assistant"
    assert json.loads(str(spoken["content"])) == {"tool": "look", "parameters": {"at": "sky"}, "reasoning": "it may rain"}
    assert only_call(str(spoken["content"])).arguments == '{"at":"sky"}'
    line, _, rest = str(answered["content"]).partition("\n")
    assert (answered["role"], line, json.loads(rest)) == ("user", "[TOOL RESULT: look]", {"seen": "sky"})


async def test_a_failed_result_in_fallback_history_has_the_tool_result_marker() -> None:
    async with Engine([look]) as engine:
        answered = fallback_result(await said(engine, RawCall(name="look", arguments="{}")))
    line, _, rest = str(answered["content"]).partition("\n")
    assert line == "[TOOL RESULT: look]"
    assert json.loads(rest)["status"] == "error"
