"""A server made with the official SDK of MCP, which speaks both eras over HTTP, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from pydantic import BaseModel, Field

from tests.app_thread import AppThread
from tests.waiting import HANGS_S

__all__ = ["SdkServer", "StoredEvents"]


class Colour(BaseModel):
    colour: str


class SdkServer:
    """The server, from `with` on. Its attributes say what its tools have noticed.

    Args:
        events: Whether it stores events, so that a stream can be continued.
        json_answers: Whether it answers with JSON bodies instead of streams.
        era: `handshake` to refuse the revision without sessions.
        port: Where it listens; 0: anywhere.
    """

    def __init__(self, *, events: bool = False, json_answers: bool = False, era: str = "both", port: int = 0) -> None:
        self.waiting = threading.Semaphore(0)
        """Released by each call of `wait` once it waits."""
        self.cancelled = threading.Semaphore(0)
        """Released by each call of `wait` that is cancelled."""
        self.calls: list[str] = []
        self.era = era
        app = _mcp_server(self).streamable_http_app(
            event_store=StoredEvents() if events else None, retry_interval=20, json_response=json_answers
        )
        self._thread = AppThread(_Sessions(app) if era == "handshake" else app, port=port)
        self.port = self._thread.port
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def __enter__(self) -> SdkServer:
        self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.__exit__()


class _Sessions:
    """Refuses requests of revision 2026-07-28 as an older server does, and passes on the others.

    Args:
        app: The server.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if (b"mcp-protocol-version", b"2026-07-28") not in scope.get("headers", ()):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"Bad Request: Unsupported protocol version"})


class StoredEvents(EventStore):
    """All events of all streams, in memory."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream = self._events[int(last_event_id) - 1][0]
        for number, (of, message) in enumerate(self._events[int(last_event_id) :], int(last_event_id) + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def _mcp_server(noticed: SdkServer) -> MCPServer:
    server = MCPServer("sdk", log_level="WARNING")

    @server.tool()
    async def echo(text: str) -> str:
        """Return the text."""
        noticed.calls.append(text)
        return text

    @server.tool()
    async def count(steps: int, ctx: Context) -> str:
        """Report progress at each step."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        return "counted"

    @server.tool()
    async def wait() -> str:
        """Wait until it is cancelled."""
        noticed.waiting.release()
        try:
            await asyncio.sleep(HANGS_S)
        except asyncio.CancelledError:
            noticed.cancelled.release()
            raise
        return "waited"

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Ask the user for a colour."""
        answer = await ctx.elicit("Which colour?", Colour)
        return getattr(answer, "data", Colour(colour="none")).colour

    @server.tool()
    async def leave(text: str, ctx: Context) -> str:
        """End the stream of this call before the answer."""
        await ctx.report_progress(1, 2, "before")
        await ctx.close_sse_stream()
        await ctx.report_progress(2, 2, "after")
        return text

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Add a tool."""
        server.add_tool(lambda: "grown", name="grown", description="Return a text.")
        await ctx.notify_tools_changed()
        await ctx.session.send_tool_list_changed()
        return "added"

    @server.tool()
    async def region(place: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Return the place, which is also a header."""
        return place

    @server.resource("note://{name}", mime_type="text/plain")
    async def note(name: str) -> str:
        """Return a note."""
        return f"the note {name}"

    @server.prompt()
    async def review(language: str) -> str:
        """Ask for a review."""
        return f"Review this {language} code."

    return server
