"""Compressed bodies: decompressed in chunks of bounded size, and only gzip."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from msgspec.structs import replace

from callgate.models._credential_redaction import SecretRedactor
from callgate.models._deadlines import RequestDeadlines
from callgate.models.http_transport import OutgoingRequest, Timeouts, Transport
from callgate.models.model_protocol import StreamingContext
from callgate.testing import End, Raw, Reply, ScriptedServer
from tests.models.decoding import finished, text_of
from tests.models.http_requests import REQUEST, abortable, ask, at


async def test_a_body_falsely_labelled_gzip_is_a_fault() -> None:
    async with ScriptedServer([Reply(turn=[Raw(b"not gzip"), End("cut")], headers={"content-encoding": "gzip"})]) as server:
        events = await ask(of := at(server))
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert fault.code == "bad_frame"


HELLO = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n'


@pytest.mark.parametrize("ends", [(len(HELLO),), (30, len(HELLO)), (1, 2, 30, len(HELLO))], ids=["one", "two", "four"])
@pytest.mark.parametrize("padding", [b"", b"\0" * 20])
@pytest.mark.parametrize("at_once", [True, False], ids=["whole", "byte by byte"])
async def test_a_gzip_body_may_have_several_members_and_padding(ends: tuple[int, ...], padding: bytes, at_once: bool) -> None:
    """RFC 1952, 2.2: a gzip body is a series of members; a server that compresses each piece by itself sends several."""
    packed = b"".join(gzip.compress(HELLO[begin:end]) for begin, end in zip((0, *ends), ends, strict=False)) + padding
    pieces = [packed] if at_once else [packed[place : place + 1] for place in range(len(packed))]
    async with ScriptedServer([Reply(turn=[*map(Raw, pieces)], headers={"content-encoding": "gzip"})]) as server:
        of = at(server)
        events = [event async for event in of.stream(replace(REQUEST, stream=False), StreamingContext())]
        await of.close()
    assert (text_of(events), finished(events).reason) == ("Hello", "stop")


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "deflate"])
async def test_a_content_encoding_that_was_not_requested_is_not_decompressed(encoding: str) -> None:
    """Every buffer is bounded: a few bytes that are compressed twice can expand to gigabytes."""
    async with ScriptedServer([Reply(turn=[Raw(b"packed"), End("cut")], headers={"content-encoding": encoding})]) as server:
        events = await ask(of := at(server))
        await of.close()
        assert server.requests[0].headers["accept-encoding"] == "gzip"
    fault = finished(events).fault
    assert fault is not None
    assert fault.message.endswith(f"(its encoding is '{encoding}', and only gzip was asked for).")


async def test_a_compressed_body_is_decompressed_in_chunks_of_bounded_size() -> None:
    """A few bytes can expand to gigabytes; the reader can stop between any two chunks."""
    packed = gzip.compress(b"x" * 3_000_000)
    async with ScriptedServer([Reply(turn=[Raw(packed), End("cut")], headers={"content-encoding": "gzip"})]) as server:
        transport = Transport("some")
        outgoing = OutgoingRequest(url=f"{server.url}/v1/chat/completions", body=b"{}", headers={}, redactor=SecretRedactor())
        with RequestDeadlines(Timeouts(), None) as watch:
            answer = await transport.open(outgoing, watch, lambda: None)
            sizes = []
            while piece := await answer.read():
                sizes.append(len(piece))
            await answer.close()
        await transport.close()
    assert sum(sizes) == 3_000_000
    assert max(sizes) <= 65_536


class Turns:
    """Counts how often another task runs while something is read."""

    def __init__(self) -> None:
        self.count = 0

    async def take(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


BOMB = gzip.compress(b": nothing at all\n" * 600_000)


async def test_other_tasks_run_while_a_compressed_body_is_decompressed() -> None:
    """The body expands from thirty kilobytes to ten megabytes; the other task runs once per chunk."""
    turns = Turns()
    async with ScriptedServer([Reply(turn=[Raw(BOMB), End("cut")], headers={"content-encoding": "gzip"})]) as server:
        of, taking = at(server), asyncio.ensure_future(turns.take())
        await ask(of, replace(REQUEST, stream=False))
        taking.cancel()
        await of.close()
    assert turns.count > 600_000 * 17 // 65_536


async def test_an_abort_takes_effect_in_the_middle_of_a_compressed_body() -> None:
    """No deadline and no kill waits for the end of the decompression."""
    controller, context = abortable()
    beats: list[int] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 5:
            asyncio.get_running_loop().call_soon(controller.abort, "enough")

    context.on_progress = beat
    async with ScriptedServer([Reply(turn=[Raw(BOMB), End("cut")], headers={"content-encoding": "gzip"})]) as server:
        events = await ask(of := at(server), replace(REQUEST, stream=False), context)
        await of.close()
    assert finished(events).reason == "cut"
    assert len(beats) < 10


@pytest.mark.parametrize("lost", [1, 8, 20], ids=["a byte", "the checksum", "data"])
async def test_a_truncated_gzip_body_is_a_fault(lost: int) -> None:
    packed = gzip.compress(HELLO)[:-lost]
    async with ScriptedServer([Reply(turn=[Raw(packed)], headers={"content-encoding": "gzip"})]) as server:
        of = at(server)
        events = [event async for event in of.stream(replace(REQUEST, stream=False), StreamingContext())]
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert fault.message.endswith("(the gzip data is incomplete).")
