"""Broken connections and malformed bodies cause a fault and complete no partial call."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate.testing import Call, Drop, End, Item, Piece, Raw, Reply, ScriptedServer
from tests.models.decoding import calls_of, finished
from tests.models.http_requests import ONCE, ask, at

WHOLE: list[Item] = [
    "Let me look. ",
    Call("search", {"q": "books"}, id="a", delta_chars=3),
    Call("search", {"q": "maps"}, id="b", delta_chars=3),
]


@given(st.integers(0, 2_500), st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_connection_dropped_at_any_byte_seals_only_complete_calls(place: int, compressed: bool) -> None:
    """At every byte of a stream, the reason is `cut` or the message is complete, and sealed calls are equal to the calls that were sent."""

    async def dropped() -> None:
        async with ScriptedServer([WHOLE]) as server:
            body = await recorded(server)
        piece = body[:place]
        pieces: list[Piece] = [Raw(piece), Drop()] if piece else [Drop()]
        async with ScriptedServer([Reply(turn=pieces, compressed=compressed)]) as server:
            events = await ask(of := at(server, retries=ONCE))
            await of.close()
        end = finished(events)
        whole = b'"finish_reason": "tool_calls"}]}\n\n' in piece
        assert (end.reason, end.fault) == ("tool_calls" if whole else "cut", None)
        for call_id, name, arguments, closed in calls_of(events):
            if closed != "cut":
                assert (name, arguments) == ("search", {"a": '{"q":"books"}', "b": '{"q":"maps"}'}[call_id])

    asyncio.run(dropped())


async def recorded(server: ScriptedServer) -> bytes:
    """Return the bytes of one body."""
    reader, writer = await asyncio.open_connection(*server.url.removeprefix("http://").removesuffix("/v1").split(":"))
    writer.write(b'POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 15\r\n\r\n{"stream":true}')
    await reader.readuntil(b"\r\n\r\n")
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    writer.close()
    return body


@pytest.mark.parametrize(
    "junk",
    [b"\x00\xff\xfe" * 100, b"<html>Bad gateway</html>", b"data: {\n\n", b'{"nothing": 1}', b"[" * 100_000],
    ids=["bytes", "a page", "half a frame", "another object", "nesting"],
)
async def test_a_garbage_body_ends_with_reason_error_or_cut(junk: bytes) -> None:
    async with ScriptedServer([Reply(turn=[Raw(junk), End("cut")])]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert finished(events).reason in ("error", "cut")
