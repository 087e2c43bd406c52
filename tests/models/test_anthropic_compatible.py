"""Messages in Anthropic's format from other hosts and servers, and the fields of its newer tools."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from callgate.messages import AssistantMessage, ToolCall, UserMessage
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.models.wire.tool_names import WireNames
from tests.models.decoding import calls_of, finished, read
from tests.models.sample_conversation import answered, sent
from tests.models.test_anthropic_messages import API, call, end


@pytest.mark.parametrize(
    ("said", "reason", "closed"),
    [
        ("tool_calls", "tool_calls", "sealed"),
        ("stop", "tool_calls", "sealed"),
        ("length", "length", "cut"),
        ("sensitive", "content_filter", "cut"),
    ],
)
def test_finish_reasons_of_other_apis_are_mapped(said: str, reason: str, closed: str) -> None:
    """For servers that offer this format for other models. Calls without arguments depend on the mapping: a cut call is never run."""
    events = read(API, call(0, "a", "f") + end(said))
    assert (finished(events).reason, calls_of(events)[0][3]) == (reason, closed)


def test_a_transient_error_of_the_host_is_retryable() -> None:
    """Vertex returns errors in Google's format, also for requests in this format."""
    failure = {"error": {"code": 429, "message": "Busy.", "status": "RESOURCE_EXHAUSTED"}}
    for body in (failure, [failure]):
        fault = finished(read(API, json.dumps(body).encode(), streamed=False)).fault
        assert fault is not None
        assert (fault.code, fault.message, fault.retryable) == ("RESOURCE_EXHAUSTED", "Busy.", True)


def test_a_call_and_its_result_carry_the_same_toolset_name() -> None:
    """The API refuses the name in only one of the two."""
    events = read(API, call(0, "a", "find", '{"q": "x"}', toolset_name="browser") + end())
    turns = sent(API, answered(events))["messages"]
    assert [turns[at]["content"][0]["toolset_name"] for at in (1, 2)] == ["browser", "browser"]
    elsewhere = sent("bedrock.invoke", answered(events))["messages"]
    assert not [block for turn in elsewhere for block in turn["content"] if "toolset_name" in block]


ODD = {"filter[id]": {"type": "string"}, "filter_id_": {"type": "integer"}, "": {}, "näme" * 20: {}, "plain": {}}


def asked(api: str, names: WireNames) -> dict[str, Any]:
    """Encode a request with a tool whose parameters have unusual names, and a call of it."""
    spec = ToolSpec(name="list", schema={"type": "object", "properties": ODD, "required": ["filter[id]", "plain"]})
    before = AssistantMessage(parts=(ToolCall(id="a", name="list", arguments='{"filter[id]": "7", "plain": 1}'),))
    request = ModelRequest(model="m", messages=[UserMessage("Go."), before], tools=(spec,))
    body: dict[str, Any] = json.loads(codec(api).encode(request, names, {}).body)
    return body


@pytest.mark.parametrize("api", ["anthropic.messages", "bedrock.invoke"])
def test_parameter_names_that_the_api_refuses_are_mapped_and_mapped_back(api: str) -> None:
    """One such tool makes every request fail; tools made from URL parameters often have such names."""
    names = WireNames(["list"])
    body = asked(api, names)
    schema = body["tools"][0]["input_schema"]
    assert len(schema["properties"]) == len(ODD)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in schema["properties"])
    sent_as = next(name for name in schema["properties"] if name.startswith("filter_id__"))
    assert schema["required"] == [sent_as, "plain"]
    assert body["messages"][1]["content"][0]["input"] == {sent_as: "7", "plain": 1}

    decoder = codec(api).decoder(names=names)
    answer = call(0, "b", "list", json.dumps({sent_as: "8", "filter_id_": 9, "else": 1})) + end()
    events = decoder.feed(answer) + decoder.close()
    assert json.loads(calls_of(events)[0][2]) == {"filter[id]": "8", "filter_id_": 9, "else": 1}
    assert finished(events).message.calls[0].arguments == calls_of(events)[0][2]


@pytest.mark.parametrize("written", ['{"filter_id__1": ', '{"plain": 1, "plain": 2}', "[1]"])
def test_malformed_arguments_are_left_unchanged(written: str) -> None:
    """Reporting what is wrong with them is left to later stages."""
    names = WireNames(["list"])
    asked(API, names)
    decoder = codec(API).decoder(names=names)
    events = decoder.feed(call(0, "b", "list", written) + end()) + decoder.close()
    assert calls_of(events)[0][2] == written


def test_bedrock_tool_parameters_are_sent_under_names_that_its_models_accept() -> None:
    names = WireNames(["list"])
    body = asked("bedrock.converse", names)
    sent_as = body["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"]["required"][0]
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", sent_as)
    assert body["messages"][1]["content"][0]["toolUse"]["input"] == {sent_as: "7", "plain": 1}
