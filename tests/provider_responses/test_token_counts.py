"""Token counts in a chat stream without a finish reason, and whether they prove that the stream was not cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from callgate import Engine, Scope
from tests.provider_responses.shop import paid, refund
from tests.provider_responses.test_watch import piece

REFUND = piece(0, "refund", '{"order": "A7"}')
COUNTS = {"usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}
NO_COUNTS = {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
ONLY_COUNTS = {"id": "chatcmpl-1", "model": "m", "choices": [], **COUNTS}


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([piece(0) | COUNTS, REFUND | COUNTS], False),
        ([piece(0), REFUND | NO_COUNTS], False),
        ([piece(0) | COUNTS, REFUND | COUNTS, ONLY_COUNTS], True),
        ([REFUND, piece(0) | COUNTS], True),
        ([REFUND, ONLY_COUNTS], True),
        ([REFUND], False),
    ],
)
async def test_token_counts_prove_a_whole_stream_only_where_they_are_those_of_the_whole(parts: list[dict[str, Any]], whole: bool) -> None:
    """Some servers give no finish reason, others give counts in every chunk."""

    async def stream() -> AsyncIterator[dict[str, Any]]:
        for one in parts:
            yield one

    paid.clear()
    async with Engine([refund]) as engine, engine.watch(stream(), Scope(run="r"), provider="openai.chat") as chunks:
        reply = await chunks.reply()
    assert (reply.ended, paid) == ((None, ["A7"]) if whole else ("aborted", []))
