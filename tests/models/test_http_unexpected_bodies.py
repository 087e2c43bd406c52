"""Bodies that are not an answer of any API: an HTML page, an empty body, or plain text, with any content type."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from callgate.models.model_events import Fault
from callgate.testing import Drop, Reply, ScriptedServer
from tests.models.decoding import finished
from tests.models.http_requests import REQUEST, ask, at

PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html><html><script>data: {}\n\n</script>Welcome</html>"


@contextlib.asynccontextmanager
async def bare_server(status: int, kind: str, pieces: list[bytes]) -> AsyncIterator[str]:
    """Answer every request with exactly these bytes; yield the server's address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        type_line = f"content-type: {kind}\r\n" if kind else ""
        writer.write(f"HTTP/1.1 {status} Fine\r\n{type_line}connection: close\r\n\r\n".encode())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("pieces", [1, 5], ids=["at once", "in pieces"])
@pytest.mark.parametrize(
    ("body", "status", "kind", "said"),
    [
        (PAGE, 200, "text/html; charset=utf-8", "answered 200 (text/html; charset=utf-8) with an HTML page"),
        (PAGE, 200, "text/event-stream", "answered 200 (text/event-stream) with an HTML page"),
        (PAGE, 200, "application/json", "answered 200 (application/json) with an HTML page"),
        (b"", 200, "application/json", "answered 200 (application/json) with an empty body"),
        (b" \n", 200, "text/event-stream", "answered 200 (text/event-stream) with an empty body"),
        (b"", 204, "", "answered 204 (no content type) with an empty body"),
        (b"It works!\n", 200, "text/plain", "answered 200 (text/plain) with unexpected text, 'It works!"),
    ],
    ids=["page", "page as events", "page as JSON", "nothing", "blank", "204", "text"],
)
async def test_a_body_that_is_not_an_answer_is_reported_with_the_base_url_to_check(
    body: bytes, status: int, kind: str, said: str, pieces: int, stream: bool
) -> None:
    """A base URL that is almost right often answers 200, with a page or an empty body. The fault names the server and the next step."""
    size = max(1, -(-len(body) // pieces))
    async with bare_server(status, kind, [body[at : at + size] for at in range(0, len(body), size)]) as address:
        events = await ask(of := at(address), replace(REQUEST, stream=stream))
        await of.close()
    faults = [event for event in events if isinstance(event, Fault)]
    assert [fault.code for fault in faults] == ["no_answer"]
    assert finished(events).fault == faults[0]
    assert faults[0].message.startswith(f"someone at {address} {said}")
    assert "Check base_url. It should end in '/v1'." in faults[0].message


async def test_advice_for_a_base_url_with_a_version_does_not_ask_to_add_one() -> None:
    async with bare_server(200, "", []) as address:
        events = await ask(of := at(f"{address}/api/v4"))
        await of.close()
    fault = finished(events).fault
    assert fault is not None
    assert (f"{address}/api/v4" in fault.message, "Check base_url. If it is" in fault.message) == (True, True)


async def test_a_dropped_connection_is_cut_and_not_reported_as_an_empty_body() -> None:
    async with ScriptedServer([Reply(turn=[Drop()])]) as server:
        events = await ask(of := at(server))
        await of.close()
    assert (finished(events).reason, finished(events).fault) == ("cut", None)
