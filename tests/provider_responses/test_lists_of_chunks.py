"""A list of all chunks of a stream is handed in like a whole response; boto3's dict has its chunks as a stream or as a list."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callgate import Engine, Scope, UsageError, tool
from callgate.calls import Image
from tests.provider_responses.recorded_bodies import BODIES, QUESTIONS
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.recorded_streams import CHUNKS, CONTENT_TYPES, STREAMS
from tests.provider_responses.sdk_requests import SDK_WARNINGS, SYNC_STREAMS, bedrock_client
from tests.provider_responses.shop import A7, LookUp, completion, paid, refund

pytestmark = SDK_WARNINGS
METADATA = {"RequestId": "request-1"}


def chunks_of(provider: str) -> list[dict[str, Any]]:
    first, second = CHUNKS[provider]
    return [*first, *second]


@pytest.mark.parametrize("provider", SYNC_STREAMS)
def test_a_synchronous_program_gives_the_list_of_the_chunks_that_it_has_shown(provider: str) -> None:
    first, second = STREAMS[provider]
    started = threading.Event()
    with RecordedServer((CONTENT_TYPES[provider], [*first, *second])) as server:
        engine = Engine([LookUp(started)])
        shown = list(SYNC_STREAMS[provider](server.url, QUESTIONS[provider], engine.schemas(provider)))
        reply = engine.respond_sync(shown, Scope(run="r"))
        engine.close_sync()
    assert (len(reply.results), reply.finish, reply.ended) == (1, "tool_calls", None)
    assert started.is_set()


@pytest.mark.parametrize("provider", CHUNKS)
async def test_a_list_that_lacks_the_end_of_its_stream_runs_nothing(provider: str) -> None:
    @tool(name="stock/look_up")
    def order(article: str) -> str:
        """Order an article."""
        raise AssertionError("the message is not complete")

    async with Engine([order]) as engine:
        reply = await engine.respond(CHUNKS[provider][0])
    assert (reply.ended, reply.finish, reply.messages) == ("aborted", "cut", [])


async def test_an_image_for_boto3_is_bytes_also_if_its_chunks_are_in_a_list() -> None:
    @tool(effect="none", name="stock/look_up")
    def draw(article: str) -> Image:
        """Draw an article."""
        return Image(data="iVBORw0KGgo=", mime_type="image/png")

    kept: Any = {"ResponseMetadata": METADATA, "stream": chunks_of("bedrock")}
    async with Engine([draw]) as engine:
        for reply in (await engine.respond(kept), await engine.watch(kept).reply()):
            (part,) = reply.results[0]["content"][0]["toolResult"]["content"]
            assert part["image"]["source"]["bytes"] == b"\x89PNG\r\n\x1a\n"
            assert reply.message_id == "request-1"


async def test_an_asynchronous_stream_is_taken_within_the_dict_of_its_request() -> None:
    async def arriving() -> AsyncIterator[dict[str, Any]]:
        for chunk in chunks_of("bedrock"):
            yield chunk

    started = threading.Event()
    async with Engine([LookUp(started)]) as engine:
        given: Any = {"ResponseMetadata": METADATA, "stream": arriving()}
        reply = await engine.watch(given).reply()
    assert (reply.message_id, len(reply.results)) == ("request-1", 1)


async def test_a_dict_with_a_stream_that_was_not_read_is_refused_with_what_to_give() -> None:
    first, second = STREAMS["bedrock"]
    with RecordedServer((CONTENT_TYPES["bedrock"], [*first, *second])) as server:
        sent = bedrock_client(server.url).converse_stream(modelId="m", messages=QUESTIONS["bedrock"])
        async with Engine([refund]) as engine:
            with pytest.raises(UsageError, match=r"Give the whole dict, which has the id of the message, to engine\.watch; or read"):
                await engine.respond(sent)
            with pytest.raises(UsageError, match=r"a stream\. Give it to engine\.watch, or read it and give a list of all its chunks"):
                await engine.respond(sent["stream"])
        sent["stream"].close()


@pytest.mark.parametrize(
    "parts",
    [[completion(A7)], [completion(A7), completion(A7)], completion(A7)["choices"], BODIES["anthropic"]["content"], []],
    ids=["one response", "two responses", "choices", "blocks", "nothing"],
)
async def test_a_list_of_anything_but_chunks_is_refused(parts: list[Any]) -> None:
    async with Engine([refund]) as engine:
        with pytest.raises(UsageError, match="a part of a response or several"):
            await engine.respond(parts)
    assert paid == []


async def test_an_error_about_a_chunk_of_a_list_names_what_was_called() -> None:
    spoilt = [*chunks_of("gemini"), {"candidates": [{"content": {"parts": "Hello"}}]}]
    async with Engine([LookUp()]) as engine:
        with pytest.raises(UsageError, match=r"engine\.respond was given a chunk of gemini\.generate whose candidates"):
            await engine.respond(spoilt)
