"""The reply to a message that failed says why in the provider's words, and whether asking the model again may help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from callgate import Engine
from tests.provider_responses.shop import claude, paid, refund

CALL = {"functionCall": {"name": "refund", "args": {"order": "A7"}}}


def gemini(finish: str, message: str = "", *parts: dict[str, Any]) -> dict[str, Any]:
    candidate = {"finishReason": finish, "content": {"role": "model", "parts": list(parts)}}
    return {"responseId": "r-1", "candidates": [candidate | ({"finishMessage": message} if message else {})]}


def converse(finish: str) -> dict[str, Any]:
    return {"output": {"message": {"role": "assistant", "content": []}}, "stopReason": finish}


REFUSED = claude(reason="refusal") | {"stop_details": {"type": "refusal", "category": "bio", "explanation": "About biology."}}
BLOCKED_PROMPT = {"promptFeedback": {"blockReason": "OTHER", "blockReasonMessage": "Try it in other words."}}


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (gemini("SAFETY", "It is dangerous."), "blocked the answer (SAFETY: It is dangerous.); nothing of it runs"),
        (gemini("SAFETY"), "blocked the answer (SAFETY); nothing of it runs"),
        (BLOCKED_PROMPT, "blocked the answer (OTHER: Try it in other words.); nothing of it runs"),
        (REFUSED, "blocked the answer (refusal: About biology.); nothing of it runs"),
        (gemini("MALFORMED_FUNCTION_CALL", "Malformed: f(x=)"), "reported an error (MALFORMED_FUNCTION_CALL): Malformed: f(x=)"),
        (gemini("MISSING_THOUGHT_SIGNATURE"), "(MISSING_THOUGHT_SIGNATURE): The request lacks the signature of a thought or a call."),
        (gemini("TOO_MANY_TOOL_CALLS"), "(TOO_MANY_TOOL_CALLS): The model made too many calls of the provider's own tools"),
    ],
)
async def test_the_reason_has_the_words_of_the_provider(response: dict[str, Any], reason: str) -> None:
    async with Engine([refund]) as engine:
        reply = await engine.respond(response)
    assert reply.ended == "aborted"
    assert reason in reply.reason


async def test_the_explanation_of_a_refusal_is_read_from_a_stream_too() -> None:
    events = [
        {"type": "message_start", "message": {**REFUSED, "stop_reason": None, "stop_details": None}},
        {"type": "message_delta", "delta": {key: REFUSED[key] for key in ("stop_reason", "stop_details")}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    async with Engine([refund]) as engine:
        assert "refusal: About biology." in (await engine.respond(events)).reason


def claude_stream(*end: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "message_start", "message": {**claude(), "stop_reason": None}}, *end]


def claude_error(kind: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": "Sorry."}}


FAILED = {"id": "resp_1", "object": "response", "status": "failed", "output": []}


@pytest.mark.parametrize(
    ("given", "retryable"),
    [
        (gemini("MALFORMED_FUNCTION_CALL"), True),
        (gemini("MALFORMED_RESPONSE", "", CALL), True),
        (gemini("MISSING_THOUGHT_SIGNATURE"), False),
        (gemini("SAFETY"), False),
        (converse("malformed_tool_use"), True),
        (converse("guardrail_intervened"), False),
        (FAILED | {"error": {"code": "server_error", "message": "Sorry."}}, True),
        (FAILED | {"error": {"code": "invalid_image", "message": "No."}}, False),
        (claude_stream(), True),
        (claude_stream(claude_error("overloaded_error")), True),
        (claude_stream(claude_error("invalid_request_error")), False),
    ],
)
async def test_the_reply_says_whether_asking_again_may_help(given: dict[str, Any] | Sequence[dict[str, Any]], retryable: bool) -> None:
    async with Engine([refund]) as engine:
        reply = await engine.respond(given)
    assert (reply.ended, reply.messages, reply.retryable) == ("aborted", [], retryable)
    assert paid == []
