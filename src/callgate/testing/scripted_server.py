"""A provider on the loopback interface that answers HTTP requests with scripted turns, in a real API's format.

Supports as much of HTTP/1.1 as model clients use, within limits. A script can refuse requests, pause, drop connections
and send invalid bytes. Keeps every request, and detects when a client has closed its connection.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from callgate._clock import Clock, SystemClock
from callgate._option_checks import by_name
from callgate.errors import UsageError
from callgate.testing._rendering import CONTENT_TYPES, render_body, render_refusal, render_stream
from callgate.testing._server_connection import Connection, ReceivedRequest
from callgate.testing.model_script import Fail, Item, Pause, Turn, items_of

__all__ = ["Drop", "Piece", "Raw", "ReceivedRequest", "Reply", "Script", "ScriptedServer"]


class Drop(Struct, frozen=True):
    """Drops the connection at this point, in the middle of the body."""


class Raw(Struct, frozen=True):
    """Sends these bytes as a piece of the body."""

    data: bytes


Piece = Item | Drop | Raw
"""A piece of a server's answer."""


class Reply(Struct, frozen=True, kw_only=True):
    """A turn with its HTTP response."""

    turn: Turn[ReceivedRequest] | Iterable[Piece] = ()
    """The content of the answer; for an error status, a `Fail` or raw pieces."""
    status: int = 200
    headers: Mapping[str, str] = {}
    before: Pause | Drop | None = None
    """A pause before the first byte of the answer."""
    framing: Literal["chunked", "length", "close"] = "chunked"
    """How the end of the body is marked. With `close`, the connection is closed. With `length`, nothing is sent
    before the body is complete.
    """
    compressed: bool = False
    """Whether to compress the body with gzip. Each piece is flushed."""


Script = Turn[ReceivedRequest] | Reply | Iterable[Piece]
"""The answer to one request."""


class ScriptedServer:
    """Serves a script. Use it with `async with`, and give `url` to a client.

    Args:
        turns: The answers in the order of the requests, or one function that returns the answer to each request. A
            request after the last turn is refused with status 500.
        api: The API: `openai.chat`, `openai.responses`, `anthropic.messages` or `ollama.chat`.
        pace: Awaited before each piece of a body, with the request and the piece's number.
        clock: The clock for pauses in seconds.
    """

    @by_name
    def __init__(
        self,
        turns: Sequence[Script] | Callable[[ReceivedRequest], Script],
        *,
        api: str = "openai.chat",
        pace: Callable[[ReceivedRequest, int], Awaitable[None]] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if api not in CONTENT_TYPES:
            raise UsageError(f"The scripted server does not speak '{api[:80]}'. It speaks: {', '.join(CONTENT_TYPES)}.")
        self.requests: list[ReceivedRequest] = []
        """The requests, in order."""
        self.connections = 0
        """The number of connections that were opened so far."""
        self._turns = turns
        self._api = api
        self._pace = pace
        self._clock = clock or SystemClock()
        self._ids = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._content_type = CONTENT_TYPES[api]

    @property
    def url(self) -> str:
        """The base URL of the API; it ends in `/v1`, except for `ollama.chat`."""
        return f"http://127.0.0.1:{self._port}" + ("" if self._api == "ollama.chat" else "/v1")

    async def __aenter__(self) -> ScriptedServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self._serve_connection), "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    # Internal

    def _serve_connection(self, connection: Connection) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while (received := await connection.request(lambda: len(self.requests))) is not None:
                self.requests.append(received)
                if not await self._answer(connection, received, self._turn(received)):
                    return
        finally:
            connection.drop()

    def _turn(self, received: ReceivedRequest) -> Reply:
        turns = self._turns
        if callable(turns):
            script: Script = turns(received)
        elif received.number < len(turns):
            script = turns[received.number]
        else:
            text = f"The script has {len(turns)} turns, and this is request {received.number + 1}."
            script = Reply(turn=Fail("script_over", text), status=500, headers={"x-should-retry": "false"})
        return script if isinstance(script, Reply) else Reply(turn=script)

    async def _answer(self, connection: Connection, received: ReceivedRequest, reply: Reply) -> bool:
        """Answer a request. Return whether the connection can be used again."""
        if reply.before is not None and not await self._wait_for_step(reply.before, received):
            return False
        streams = reply.status == 200 and received.body_json.get("stream", self._api == "ollama.chat") is True
        pieces = self._pieces(received, reply, streams=streams)
        packer = _Packer(gzip_it=reply.compressed)
        headers = {"content-type": self._content_type if streams else "application/json", **reply.headers}
        if reply.compressed:
            headers["content-encoding"] = "gzip"
        if reply.framing == "length":
            body = b"".join(packer.piece(piece) for piece in pieces if isinstance(piece, bytes)) + packer.end()
            connection.head(reply.status, {**headers, "content-length": str(len(body))})
            await connection.send(body)
            return not connection.gone.is_set()
        chunked = reply.framing == "chunked"
        connection.head(reply.status, {**headers, **({"transfer-encoding": "chunked"} if chunked else {"connection": "close"})})
        for number, piece in enumerate(pieces):
            if not isinstance(piece, bytes):
                if not await self._wait_for_step(piece, received):
                    return False
                continue
            if self._pace is not None:
                await self._pace(received, number)
            await connection.send(packer.piece(piece), chunked=chunked)
            if connection.gone.is_set():
                return False
        await connection.send(packer.end(), chunked=chunked)
        await connection.send(b"0\r\n\r\n" if chunked else b"")
        return chunked and not connection.gone.is_set()

    def _pieces(self, received: ReceivedRequest, reply: Reply, *, streams: bool) -> list[bytes | Pause | Drop]:
        items = items_of(reply.turn, received, self._new_id)  # type: ignore[arg-type]
        model = str(received.body_json.get("model", "scripted"))
        if streams:
            return [
                piece if isinstance(piece, bytes) else _wire(piece) for piece in render_stream(self._api, items, model, received.number + 1)
            ]
        fail = next((item for item in items if isinstance(item, Fail)), None)
        others = [_wire(item) for item in items if isinstance(item, (Pause, Drop, Raw))]
        if fail is not None:
            return [*others, render_refusal(self._api, fail)]
        said = [item for item in items if not isinstance(item, (Pause, Drop, Raw))]
        return [*others, *([render_body(self._api, said, model, received.number + 1)] if said else [])]

    async def _wait_for_step(self, wait: Pause | Drop, received: ReceivedRequest) -> bool:
        """Wait as the script says; return whether the client is still connected."""
        if isinstance(wait, Drop):
            return False
        until = wait.until.wait() if isinstance(wait.until, asyncio.Event) else self._clock.sleep(wait.until)
        waits = [asyncio.ensure_future(until), asyncio.ensure_future(received.gone.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return not received.gone.is_set()

    def _new_id(self) -> str:
        self._ids += 1
        return f"call_{self._ids}"


def _wire(item: object) -> bytes | Pause | Drop:
    if isinstance(item, Raw):
        return item.data
    if isinstance(item, (Pause, Drop)):
        return item
    raise TypeError(f"{type(item).__name__} cannot be sent.")


class _Packer:
    """Compresses the body piece by piece, or passes it through."""

    def __init__(self, *, gzip_it: bool) -> None:
        self._zip = zlib.compressobj(wbits=31) if gzip_it else None

    def piece(self, data: bytes) -> bytes:
        return data if self._zip is None else self._zip.compress(data) + self._zip.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return b"" if self._zip is None else self._zip.flush()
