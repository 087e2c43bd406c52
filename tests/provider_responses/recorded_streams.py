"""Streams of each provider with one call of `stock/look_up`, in two halves: the call is complete at the end of the first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.models.aws_frames import event as aws_event
from tests.provider_responses.recorded_bodies import ANSWERS, WIRE_NAME

__all__ = ["CHUNKS", "CONTENT_TYPES", "STREAMS"]

_TEXT = json.dumps({"article": "lamp"})


def _delta(delta: dict[str, Any], finish: str | None = None, first: str = "chatcmpl-1") -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": first, "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _chat_call(call_id: str, arguments: str = "") -> dict[str, Any]:
    return {"index": 0, "id": call_id, "type": "function", "function": {"name": WIRE_NAME, "arguments": arguments}}


def _pieces() -> list[dict[str, Any]]:
    return [_delta({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}) for text in (_TEXT[:7], _TEXT[7:])]


def _response(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": number, **more}


def _whole_response(status: str, *output: dict[str, Any]) -> dict[str, Any]:
    return {**ANSWERS["openai-responses"], "status": status, "output": list(output)}


_CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": WIRE_NAME}
_DONE = {**_CALL, "arguments": _TEXT, "status": "completed"}
_DELTA = {"item_id": "fc_1", "output_index": 0}
_CLAUDE = {**ANSWERS["anthropic"], "content": [], "stop_reason": None}
_BLOCK = {"type": "tool_use", "id": "toolu_a", "name": WIRE_NAME, "input": {}}


def _json_delta(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}


def _gemini(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, **more}
    return {"responseId": "r-1", "modelVersion": "gemini-3-pro", "candidates": [candidate]}


def _cohere(kind: str, **message: Any) -> dict[str, Any]:
    return {"type": kind, "index": 0, "delta": {"message": message}}


_COHERE_CALL = {"id": "call_a", "type": "function", "function": {"name": WIRE_NAME, "arguments": ""}}
_OLLAMA = {"model": "qwen3", "created_at": "2026-11-23T10:00:00.123Z"}

CHUNKS: Mapping[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "openai": (
        [_delta({"role": "assistant", "content": None, "tool_calls": [_chat_call("call_a")]}), *_pieces()],
        [_delta({}, "tool_calls")],
    ),
    "mistral": (
        [_delta({"role": "assistant", "content": ""}), _delta({"content": "", "tool_calls": [_chat_call("abcdefgh1", _TEXT)]})],
        [_delta({"content": ""}, "tool_calls")],
    ),
    "openai-responses": (
        [
            _response("created", 0, response=_whole_response("in_progress")),
            _response("output_item.added", 1, output_index=0, item={**_CALL, "arguments": "", "status": "in_progress"}),
            _response("function_call_arguments.delta", 2, delta=_TEXT[:7], **_DELTA),
            _response("function_call_arguments.delta", 3, delta=_TEXT[7:], **_DELTA),
        ],
        [
            _response("function_call_arguments.done", 4, arguments=_TEXT, name=WIRE_NAME, **_DELTA),
            _response("output_item.done", 5, output_index=0, item=_DONE),
            _response("completed", 6, response=_whole_response("completed", _DONE)),
        ],
    ),
    "anthropic": (
        [
            {"type": "message_start", "message": _CLAUDE},
            {"type": "content_block_start", "index": 0, "content_block": _BLOCK},
            _json_delta(_TEXT[:7]),
            _json_delta(_TEXT[7:]),
            {"type": "content_block_stop", "index": 0},
        ],
        [
            {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ],
    ),
    "gemini": (
        [_gemini({"text": "Hm.", "thought": True}), _gemini({"functionCall": {"name": WIRE_NAME, "args": {"article": "lamp"}}})],
        [_gemini({"text": ""}, finishReason="STOP")],
    ),
    "bedrock": (
        [
            {"messageStart": {"role": "assistant"}},
            {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "tooluse_a", "name": WIRE_NAME}}}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": _TEXT[:7]}}}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": _TEXT[7:]}}}},
            {"contentBlockStop": {"contentBlockIndex": 0}},
        ],
        [{"messageStop": {"stopReason": "tool_use"}}],
    ),
    "cohere": (
        [
            {"type": "message-start", "id": "c-1", "delta": {"message": {"role": "assistant", "content": []}}},
            _cohere("tool-call-start", tool_calls=_COHERE_CALL),
            _cohere("tool-call-delta", tool_calls={"function": {"arguments": _TEXT[:7]}}),
            _cohere("tool-call-delta", tool_calls={"function": {"arguments": _TEXT[7:]}}),
        ],
        [{"type": "tool-call-end", "index": 0}, {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}}],
    ),
    "ollama": (
        [
            {
                **_OLLAMA,
                "done": False,
                "message": {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"function": {"name": WIRE_NAME, "arguments": {"article": "lamp"}}}],
                },
            }
        ],
        [{**_OLLAMA, "done": True, "done_reason": "stop", "message": {"role": "assistant", "content": ""}}],
    ),
}
"""By provider: the chunks as JSON data."""

CONTENT_TYPES: Mapping[str, str] = {
    **dict.fromkeys(CHUNKS, "text/event-stream"),
    "bedrock": "application/vnd.amazon.eventstream",
    "ollama": "application/x-ndjson",
}


def _wire(provider: str, chunk: dict[str, Any]) -> bytes:
    if provider == "bedrock":
        ((kind, payload),) = chunk.items()
        return aws_event(kind, payload)
    if provider == "ollama":
        return json.dumps(chunk).encode() + b"\n"
    event = f"event: {chunk['type']}\n" if "type" in chunk else ""
    return f"{event}data: {json.dumps(chunk)}\n\n".encode()


STREAMS: Mapping[str, tuple[list[bytes], list[bytes]]] = {
    provider: ([_wire(provider, chunk) for chunk in first], [_wire(provider, chunk) for chunk in second])
    for provider, (first, second) in CHUNKS.items()
}
"""By provider: the chunks as the bytes of a body, in the same two halves."""
for _provider in ("openai", "mistral"):
    STREAMS[_provider][1].append(b"data: [DONE]\n\n")
