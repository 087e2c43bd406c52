"""A model without calls of its own writes them as text: a loop with `respond` or `watch` takes it for the answer, and the log says so."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Engine
from tests.provider_responses.shop import paid, refund

AS_TEXT = {
    "bare JSON": '{"name": "refund", "arguments": {"order": "A7"}}',
    "JSON in a fence": '```json\n{"name": "refund", "parameters": {"order": "A7"}}\n```',
    "Hermes": 'At once. <tool_call>{"name": "refund", "arguments": {"order": "A7"}}</tool_call>',
    "Mistral": '[TOOL_CALLS][{"name": "refund", "arguments": {"order": "A7"}}]',
}
ANSWERS = {
    "an answer": "It is refunded.",
    "an answer in JSON": '{"name": "Ann", "order": "A7"}',
    "an example": 'For example:\n```json\n{"name": "refund", "arguments": {"order": "A7"}}\n```\nwould refund it.',
    "a call of a tool of another": '{"name": "fly", "arguments": {}}',
    "a long text": '{"name": "refund", "arguments": {"order": "A7"}}' + " Well." * 5_000,
}


def ollama(text: str) -> dict[str, Any]:
    head = {"model": "m", "created_at": "2026-11-23T10:00:00.123Z", "done": True, "done_reason": "stop"}
    return {**head, "message": {"role": "assistant", "content": text}}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "as text" in record.getMessage()]


@pytest.mark.parametrize("text", AS_TEXT.values(), ids=AS_TEXT)
async def test_a_call_that_a_model_wrote_as_text_does_not_run_and_is_mentioned_once(text: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([refund]) as engine:
        reply = await engine.respond(ollama(text))
        watched = await engine.watch([{**ollama(text), "done": False}, ollama("")]).reply()
    assert (reply.done, reply.text, paid) == (True, text, [])
    assert (watched.done, watched.text) == (True, text)
    assert len(warnings(caplog)) == 1
    assert "has a call of 'refund' as text, which is not run" in caplog.text
    assert "text_calls='fallback'" in caplog.text


async def test_a_call_in_the_text_of_a_stream_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([refund]) as engine:
        await engine.watch([{**ollama(AS_TEXT["Hermes"]), "done": False}, ollama("")]).reply()
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("text", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_not_taken_for_a_call(text: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Engine([refund]) as engine:
        await engine.respond(ollama(text))
    assert warnings(caplog) == []
