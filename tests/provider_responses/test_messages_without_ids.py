"""A message without an id, whose calls have none either, has the same calls when it is handed in again, streamed or whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, SqliteJournal
from tests.provider_responses.shop import paid, refund

SCOPE = Scope(run="support-17")


def gemini(*orders: str, finish: str | None = "STOP") -> dict[str, Any]:
    """Return a chunk of Gemini's API, or a whole response, with a refund of each order."""
    parts = [{"functionCall": {"name": "refund", "args": {"order": order}}} for order in orders]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, **({"finishReason": finish} if finish else {})}]}


def ollama(*orders: str, done: bool = True) -> dict[str, Any]:
    """Return a chunk of Ollama's API, or a whole response, with a refund of each order."""
    calls = [{"function": {"name": "refund", "arguments": {"order": order}}} for order in orders]
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    return {"model": "m", "message": message, "done": done, **({"done_reason": "stop"} if done else {})}


GEMINI = [gemini("A7", finish=None), gemini("B8", finish=None), gemini()]
OLLAMA = [ollama("A7", done=False), ollama("B8", done=False), ollama()]


@pytest.mark.parametrize("chunks", [GEMINI, OLLAMA], ids=["Gemini", "Ollama"])
async def test_the_chunks_of_a_message_without_ids_that_are_handed_in_again_pay_once(chunks: list[Any], tmp_path: Path) -> None:
    for _ in range(2):
        async with Engine([refund], journal=SqliteJournal(tmp_path / "calls.db")) as engine:
            for _ in range(2):
                async with engine.watch(chunks, SCOPE) as watched:
                    reply = await watched.reply()
                assert len(reply.outcomes) == 2
    assert sorted(paid) == ["A7", "B8"]


@pytest.mark.parametrize(("chunks", "whole"), [(GEMINI, gemini("A7", "B8")), (OLLAMA, ollama("A7", "B8"))], ids=["Gemini", "Ollama"])
async def test_a_message_without_ids_has_the_same_calls_whole_as_streamed(chunks: list[Any], whole: dict[str, Any]) -> None:
    async with Engine([refund]) as engine:
        async with engine.watch(chunks, SCOPE) as watched:
            await watched.reply()
        await engine.respond(whole, SCOPE)
    assert sorted(paid) == ["A7", "B8"]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "2026-11-23T10:00:00Z", "2026-11-23T10:00:00+01:00"])
@pytest.mark.parametrize("way", ["respond", "watch"])
async def test_a_time_that_several_messages_of_a_server_have_is_no_id_and_the_log_says_what_was_not_run(
    way: str, time: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine([refund]) as engine:
        for _ in range(2):
            if way == "respond":
                reply = await engine.respond({**ollama("A7"), "created_at": time}, SCOPE)
            else:
                reply = await engine.watch([{**chunk, "created_at": time} for chunk in OLLAMA], SCOPE).reply()
    assert reply.message_id == ""
    assert "give Scope.message_id" in caplog.text
    assert paid.count("A7") == 1


async def test_equal_calls_of_two_messages_of_ollama_both_run() -> None:
    async with Engine([refund]) as engine:
        for time in ("2026-11-23T10:00:00.123456789Z", "2026-11-23T10:00:00.5Z"):
            await engine.respond({**ollama("A7"), "created_at": time}, SCOPE)
    assert paid == ["A7", "A7"]
