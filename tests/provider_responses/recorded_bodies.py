"""Whole responses of each provider with two calls: `stock/look_up` for one article, which succeeds, and an unknown tool.

The names are those of the request: a provider refuses the slash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["ANSWERS", "BODIES", "QUESTIONS", "WIRE_NAME", "body"]

WIRE_NAME = f"stock_look_up_{hashlib.sha256(b'stock/look_up').hexdigest()[:6]}"
_ARGUMENTS = {"article": "lamp"}
_TEXT = json.dumps(_ARGUMENTS)


def _chat_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _completion(message: dict[str, Any], finish: str, first: str) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": first, "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _claude(content: list[dict[str, Any]], reason: str) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None, "usage": usage}
    return {**head, "stop_reason": reason, "content": content}


def _response(*output: dict[str, Any]) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5", "status": "completed", "parallel_tool_calls": True}
    return {**head, "tool_choice": "auto", "tools": [], "output": list(output)}


def _candidate(*parts: dict[str, Any]) -> dict[str, Any]:
    candidate = {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": list(parts)}}
    return {"responseId": "r-1", "modelVersion": "gemini-3-pro", "candidates": [candidate]}


def _converse(content: list[dict[str, Any]], reason: str) -> dict[str, Any]:
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": reason,
        "usage": usage,
        "metrics": {"latencyMs": 1},
    }


def _ollama(message: dict[str, Any]) -> dict[str, Any]:
    head = {"model": "qwen3", "created_at": "2026-11-23T10:00:00.123Z", "done": True, "done_reason": "stop"}
    return {**head, "message": {"role": "assistant", "content": "", **message}}


_MESSAGE = {"id": "msg_9", "type": "message", "role": "assistant", "status": "completed"}
_CALLS = [_chat_call("call_a", WIRE_NAME, _TEXT), _chat_call("call_b", "fly", "{}")]
_MISTRAL_CALLS = [_chat_call("abcdefgh1", WIRE_NAME, _TEXT), _chat_call("abcdefgh2", "fly", "{}")]

BODIES: Mapping[str, dict[str, Any]] = {
    "openai": _completion({"content": None, "tool_calls": _CALLS}, "tool_calls", "chatcmpl-1"),
    "mistral": _completion({"content": "", "tool_calls": _MISTRAL_CALLS}, "tool_calls", "cmpl-1"),
    "openai-responses": _response(
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": WIRE_NAME, "arguments": _TEXT, "status": "completed"},
        {"type": "function_call", "id": "fc_2", "call_id": "call_b", "name": "fly", "arguments": "{}", "status": "completed"},
    ),
    "anthropic": _claude(
        [
            {"type": "thinking", "thinking": "Look it up.", "signature": "c2ln"},
            {"type": "text", "text": "One moment."},
            {"type": "tool_use", "id": "toolu_a", "name": WIRE_NAME, "input": _ARGUMENTS},
            {"type": "tool_use", "id": "toolu_b", "name": "fly", "input": {}},
        ],
        "tool_use",
    ),
    "gemini": _candidate(
        {"functionCall": {"name": WIRE_NAME, "args": _ARGUMENTS}, "thoughtSignature": "AAEC+/8="},
        {"functionCall": {"name": "fly", "args": {}}},
    ),
    "bedrock": _converse(
        [
            {"reasoningContent": {"redactedContent": "AAEC+/8="}},
            {"toolUse": {"toolUseId": "tooluse_a", "name": WIRE_NAME, "input": _ARGUMENTS}},
            {"toolUse": {"toolUseId": "tooluse_b", "name": "fly", "input": {}}},
        ],
        "tool_use",
    ),
    "cohere": {
        "id": "c-1",
        "finish_reason": "TOOL_CALL",
        "message": {"role": "assistant", "tool_plan": "Look it up.", "tool_calls": _CALLS},
    },
    "ollama": _ollama(
        {"tool_calls": [{"function": {"name": WIRE_NAME, "arguments": _ARGUMENTS}}, {"function": {"name": "fly", "arguments": {}}}]}
    ),
}
"""By provider: the body of a response."""

ANSWERS: Mapping[str, dict[str, Any]] = {
    "openai": _completion({"content": "There are 3."}, "stop", "chatcmpl-2"),
    "mistral": _completion({"content": "There are 3."}, "stop", "cmpl-2"),
    "openai-responses": _response({**_MESSAGE, "content": [{"type": "output_text", "text": "There are 3.", "annotations": []}]}),
    "anthropic": _claude([{"type": "text", "text": "There are 3."}], "end_turn"),
    "gemini": _candidate({"text": "There are 3."}),
    "bedrock": _converse([{"text": "There are 3."}], "end_turn"),
    "cohere": {
        "id": "c-2",
        "finish_reason": "COMPLETE",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "There are 3."}]},
    },
    "ollama": _ollama({"content": "There are 3."}),
}
"""By provider: the body of an answer without calls."""

_QUESTION = [{"role": "user", "content": "How many lamps?"}]
QUESTIONS: Mapping[str, list[Any]] = {
    **dict.fromkeys(BODIES, _QUESTION),
    "gemini": [{"role": "user", "parts": [{"text": "How many lamps?"}]}],
    "bedrock": [{"role": "user", "content": [{"text": "How many lamps?"}]}],
}
"""By provider: a conversation with one question."""


def body(value: object) -> list[bytes]:
    return [json.dumps(value).encode()]
