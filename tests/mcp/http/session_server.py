"""A fake server with sessions, as revisions up to 2025-11-25 have them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.mcp.http.fake_server import FakeServer, Reply, Sent, result_of

__all__ = ["SessionServer"]

TEXT = {"type": "text", "text": "done"}


class SessionServer:
    """Opens sessions, refuses requests of sessions that it does not know, and answers calls.

    Args:
        call: Writes the response to a call; None: its result.
        get: Writes the response to a GET; None: it is not allowed.
    """

    def __init__(
        self,
        call: Callable[[Sent, Reply], Awaitable[None]] | None = None,
        get: Callable[[Sent, Reply], Awaitable[None]] | None = None,
    ) -> None:
        self.known = ""
        """The id of the open session."""
        self.revision = "2025-11-25"
        self.opened = 0
        self.confirm = asyncio.Event()
        """Cleared to hold back the answer to `notifications/initialized`; until then, calls of the session are refused."""
        self.confirm.set()
        self.forget_status = 404
        self.forget_reason = "Session not found"
        self.repeats_id = False
        """Whether the refusal of a request of a forgotten session has the id of the request."""
        self.http = FakeServer(self._answer)
        self._call = call or _done
        self._get = get

    async def __aenter__(self) -> SessionServer:
        await self.http.__aenter__()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.http.__aexit__(*args)

    @property
    def url(self) -> str:
        return self.http.url

    def forget(self) -> None:
        """Forget the session, as a server does that restarts."""
        self.known = "forgotten"

    def sent(self, method: str) -> list[Sent]:
        """Return the requests of this method, of HTTP or of the message."""
        return [sent for sent, found in zip(self.http.sent, self.http.methods, strict=True) if found == method]

    async def _answer(self, sent: Sent, reply: Reply) -> None:
        if sent.method == "POST" and sent.message.get("method") == "initialize":
            self.opened += 1
            self.known = f"session-{self.opened}"
            result = result_of(sent, protocolVersion=self.revision, capabilities={"tools": {"listChanged": True}}, serverInfo={})
            await reply.json(result, mcp_session_id=self.known)
        elif sent.headers.get("mcp-session-id") != self.known:
            error = {"code": -32000, "message": self.forget_reason}
            number = sent.message.get("id") if self.repeats_id and sent.method == "POST" else None
            await reply.json({"jsonrpc": "2.0", "id": number, "error": error}, self.forget_status)
        elif sent.method == "GET" and self._get is not None:
            await self._get(sent, reply)
        elif sent.method == "GET":
            await reply.send(405, "text/plain")
        elif not self.confirm.is_set():
            await self._confirm(sent, reply)
        elif sent.method == "DELETE" or "id" not in sent.message or "method" not in sent.message:
            await reply.raw(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        else:
            await self._call(sent, reply)

    async def _confirm(self, sent: Sent, reply: Reply) -> None:
        if "id" in sent.message:
            await reply.json({"jsonrpc": "2.0", "id": sent.message["id"], "error": {"code": -32600, "message": "not initialized"}})
            return
        await self.confirm.wait()
        await reply.raw(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")


async def _done(sent: Sent, reply: Reply) -> None:
    await reply.json(result_of(sent, content=[TEXT]))


async def hold(sent: Sent, reply: Reply) -> None:
    """Open a stream and send nothing."""
    await reply.stream()
    await asyncio.Event().wait()
