"""Send what tools report while they run to the clients that want progress.

What the tool of an MCP server reports, its connection hands to the client itself, as it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from callgate.engine import Engine
from callgate.events import Progress
from callgate.gateway._client_calls import ClientCall
from callgate.mcp.mcp_tool import McpTool

__all__ = ["LiveOutput"]

_NOTHING = nullcontext()


class LiveOutput:
    """The running calls of one engine whose clients want progress."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._calls: dict[str, ClientCall] = {}
        """By the id of the call."""
        self._end: Callable[[], None] | None = None

    def send_to(self, client_call: ClientCall, call_id: str, tool: str) -> AbstractContextManager[None]:
        """Send the client what the call reports during the block, if it wants progress."""
        if not client_call.wants_progress:
            return _NOTHING
        bound = self._engine.tools.get(tool)
        return _NOTHING if bound is None or isinstance(bound.tool, McpTool) else self._send_to(client_call, call_id)

    @contextmanager
    def _send_to(self, client_call: ClientCall, call_id: str) -> Iterator[None]:
        client_call.counts_progress = True
        self._calls[call_id] = client_call
        if self._end is None:
            self._end = self._engine.bus.subscribe(self._report, "call.progress")
        try:
            yield
        finally:
            self._calls.pop(call_id, None)
            if not self._calls:
                self._end()
                self._end = None

    def _report(self, topic: str, piece: object) -> None:
        if isinstance(piece, Progress) and (client_call := self._calls.get(piece.call_id)) is not None:
            client_call.report(piece.text)
