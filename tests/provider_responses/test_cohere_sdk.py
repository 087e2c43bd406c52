"""`engine.respond` and `engine.watch` with answers of Cohere: of both versions of its API, and streams of which a part is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import cohere
import pytest

from callgate import Engine, Scope, UsageError
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.recorded_streams import CHUNKS
from tests.provider_responses.sdk_requests import SDK_WARNINGS, kept
from tests.provider_responses.shop import paid, refund

pytestmark = SDK_WARNINGS
SCOPE = Scope(run="support-17")
VERSION_1: dict[str, Any] = {
    "response_id": "r-1",
    "generation_id": "g-1",
    "text": "I will refund it.",
    "finish_reason": "COMPLETE",
    "tool_calls": [{"name": "refund", "parameters": {"order": "A7"}}],
}
EVENTS: list[dict[str, Any]] = [
    {"event_type": "stream-start", "generation_id": "g-1", "is_finished": False},
    {"event_type": "tool-calls-generation", "tool_calls": VERSION_1["tool_calls"], "is_finished": False},
    {"event_type": "stream-end", "finish_reason": "COMPLETE", "response": VERSION_1, "is_finished": True},
]


def version_1(url: str) -> cohere.Client:
    client: cohere.Client = kept(cohere.Client(api_key="x", base_url=url))
    return client


def as_dicts(items: list[Any]) -> list[Any]:
    return [item.model_dump() for item in items]


@pytest.mark.parametrize("form", [list, as_dicts], ids=["objects", "dicts"])
async def test_an_answer_of_version_1_runs_nothing_and_the_error_says_what_to_use(form: Callable[[list[Any]], list[Any]]) -> None:
    """The client of version 1 refuses the messages of version 2."""
    with RecordedServer(("application/json", [json.dumps(VERSION_1).encode()])) as server:
        (response,) = form([version_1(server.url).chat(message="Refund A7.")])
    async with Engine([refund]) as engine:
        for provider in (None, "cohere"):
            with pytest.raises(UsageError, match=r"version 1 of Cohere's API .* Use cohere\.ClientV2"):
                await engine.respond(response, SCOPE, provider=provider)
    assert paid == []


@pytest.mark.parametrize("form", [list, as_dicts], ids=["objects", "dicts"])
async def test_a_stream_of_version_1_runs_nothing(form: Callable[[list[Any]], list[Any]]) -> None:
    lines = b"\n".join(json.dumps(event).encode() for event in EVENTS)
    with RecordedServer(("application/stream+json", [lines])) as server:
        events = form(list(version_1(server.url).chat_stream(message="Refund A7.")))
    async with Engine([refund]) as engine:
        async with engine.watch(events, SCOPE) as watched:
            with pytest.raises(UsageError, match="version 1 of Cohere's API"):
                await watched.reply()
        with pytest.raises(UsageError, match="version 1 of Cohere's API"):
            await engine.respond(events, SCOPE)
    assert paid == []


@pytest.mark.parametrize("first", [1, 2, 4, 5])
async def test_a_stream_whose_beginning_the_host_has_read_is_refused(first: int) -> None:
    """The first event has the id of the message, without which its calls are not recognised when it is handed in again."""
    events = [event for half in CHUNKS["cohere"] for event in half]
    async with Engine([refund]) as engine:
        with pytest.raises(UsageError, match=r"whose beginning has been read: it starts with [a-z-]+, so a part of the message is missing"):
            await engine.respond(events[first:], SCOPE)
        async with engine.watch(events[first:], SCOPE) as watched:
            with pytest.raises(UsageError, match="whose beginning has been read"):
                await watched.reply()
