"""Results of every kind in `reply.messages`: the types of the providers' SDKs take them, with the ids and order of the calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from callgate.calls import Audio, Image, Link, Resource, Text, ToolResult
from callgate.content_parts import Part
from callgate.provider_responses import history_items, read_response
from tests.provider_responses.sdk_requests import SDK_WARNINGS, bedrock_client

pytestmark = SDK_WARNINGS

PARTS: list[Part] = [
    Text(text="ok"),
    Text(text=""),
    Text(text=" \n"),
    Link(uri="https://x.test", name="x"),
    Image(data="iVBORw0KGgo=", mime_type="image/png"),
    Image(data="R0lGODlh", mime_type="image/gif"),
    Image(data="UElD", mime_type="image/heic"),
    Image(data="UElD", mime_type="image/svg+xml"),
    Audio(data="UklGRg==", mime_type="audio/wav"),
    Audio(data="T2dnUw==", mime_type="audio/ogg"),
    *(
        Resource(resource={"uri": f"file:///a.{kind}", "mimeType": mime, "blob": "YSxi"})
        for kind, mime in (("pdf", "application/pdf"), ("zip", "application/zip"), ("csv", "text/csv"), ("mp4", "video/mp4"))
    ),
    Resource(resource={"uri": "file:///a.csv", "mimeType": "text/csv", "text": "a,b"}),
]
ID_KEYS = ("tool_call_id", "tool_use_id", "toolUseId", "call_id")
statuses = st.sampled_from(["ok", "error", "unknown"])
endings = st.lists(st.tuples(statuses, st.lists(st.sampled_from(PARTS), max_size=4)), min_size=1, max_size=4)
Items = list[dict[str, Any]]


def _chat(ids: list[str], model: str) -> dict[str, Any]:
    calls = [{"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call_id in ids]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return {"id": "x", "model": model, "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}


def _responses(ids: list[str]) -> dict[str, Any]:
    output = [{"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "look", "arguments": "{}"} for call_id in ids]
    return {"id": "r", "object": "response", "model": "gpt-5", "status": "completed", "output": output}


def _anthropic(ids: list[str]) -> dict[str, Any]:
    content = [{"type": "tool_use", "id": call_id, "name": "look", "input": {}} for call_id in ids]
    return {"id": "m", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "tool_use", "content": content}


def _gemini(ids: list[str], model: str) -> dict[str, Any]:
    parts = [{"functionCall": {"id": call_id, "name": "look", "args": {}}} for call_id in ids]
    return {
        "responseId": "x",
        "modelVersion": model,
        "candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": parts}}],
    }


def _interaction(ids: list[str]) -> dict[str, Any]:
    steps = [{"type": "function_call", "id": call_id, "name": "look", "arguments": {}} for call_id in ids]
    return {"id": "i", "object": "interaction", "model": "gemini-3-pro", "status": "requires_action", "steps": steps}


def _bedrock(ids: list[str]) -> dict[str, Any]:
    content = [{"toolUse": {"toolUseId": call_id, "name": "look", "input": {}}} for call_id in ids]
    head = {"ResponseMetadata": {"RequestId": "r"}, "stopReason": "tool_use"}
    return {**head, "output": {"message": {"role": "assistant", "content": content}}}


def _cohere(ids: list[str]) -> dict[str, Any]:
    message = _chat(ids, "")["choices"][0]["message"]
    return {"id": "x", "finish_reason": "TOOL_CALL", "message": {**message, "content": None, "tool_plan": "Look."}}


def _ollama(ids: list[str]) -> dict[str, Any]:
    calls = [{"function": {"name": "look", "arguments": {}}} for _ in ids]  # the SDK drops ids
    return {"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", "done": True, "message": {"role": "assistant", "tool_calls": calls}}


RESPONSES: Mapping[str, Callable[[list[str]], dict[str, Any]]] = {
    "openai": lambda ids: _chat(ids, "gpt-5"),
    "mistral": lambda ids: _chat(ids, "mistral-large"),
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": lambda ids: _gemini(ids, "gemini-2.5-pro"),
    "gemini 3": lambda ids: _gemini(ids, "gemini-3-pro"),
    "gemini.interactions": _interaction,
    "bedrock": _bedrock,
    "cohere": _cohere,
    "ollama": _ollama,
}


@cache
def sdk_type(provider: str) -> TypeAdapter[Any]:
    """Return the type that an SDK publishes for the items, or checks itself."""
    if provider == "openai":
        from openai.types.chat import ChatCompletionMessageParam

        return TypeAdapter(list[ChatCompletionMessageParam])
    if provider == "openai-responses":
        from openai.types.responses import ResponseInputItemParam

        return TypeAdapter(list[ResponseInputItemParam])
    if provider == "anthropic":
        from anthropic.types import MessageParam

        return TypeAdapter(list[MessageParam])
    if provider == "mistral":
        from mistralai.client.models import ChatCompletionRequestMessage

        return TypeAdapter(list[ChatCompletionRequestMessage])
    if provider == "cohere":
        from cohere.types import ChatMessageV2

        return TypeAdapter(list[ChatMessageV2])
    if provider == "gemini.interactions":
        from google.genai.interactions import Step

        return TypeAdapter(list[Step])
    from google.genai.types import Content

    return TypeAdapter(list[Content])


def plain(value: Any) -> Any:
    """Return what a type has read as plain data, with all that it reads later."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json", exclude_unset=True, by_alias=True))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else value


def check_with_sdk(provider: str, items: Items) -> None:
    """Fail if the provider's SDK refuses an item or drops a part of it."""
    if provider == "bedrock":
        from botocore.validate import ParamValidator

        shape = bedrock_client("http://localhost").meta.service_model.operation_model("Converse").input_shape
        report = ParamValidator().validate({"modelId": "m", "messages": items}, shape)
        assert not report.has_errors(), report.generate_report()
    elif provider == "ollama":
        from ollama import Message

        for item in items:
            sent = {**item, "images": [{"value": data} for data in item["images"]]} if "images" in item else item
            assert Message.model_validate(sent).model_dump(exclude_none=True) == item
    elif provider.partition(" ")[0] == "gemini":  # refuses what it does not know
        sdk_type(provider).validate_python(items)
    else:
        assert plain(sdk_type(provider).validate_python(items)) == items


def result_ids(value: object) -> list[str]:
    """Return the ids of the results in items, in order."""
    if isinstance(value, list):
        return [found for item in value for found in result_ids(item)]
    if not isinstance(value, dict):
        return []
    own = value.get("id") if "response" in value else next((value[key] for key in ID_KEYS if key in value), None)
    return [own] if own is not None else result_ids(list(value.values()))


@pytest.mark.parametrize("provider", RESPONSES)
@given(endings)
def test_the_sdk_takes_results_of_every_kind(provider: str, ended: list[tuple[Any, list[Part]]]) -> None:
    ids = [f"call0000{number}" for number in range(len(ended))]
    response = read_response(RESPONSES[provider](ids), provider.partition(" ")[0])
    results = [
        ToolResult(id=call_id, uid=call_id, name="look", status=status, content=tuple(content))
        for call_id, (status, content) in zip(ids, ended, strict=True)
    ]
    items = history_items(response, results)
    check_with_sdk(provider, items.messages)
    if provider == "ollama":
        assert [item["tool_name"] for item in items.results if item["role"] == "tool"] == ["look"] * len(ids)
    else:
        assert result_ids(items.results) == ids
