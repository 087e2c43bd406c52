"""Keep the list of tools of one session current.

The tools are listed at each start, after notices that they have changed, when their list no longer holds, and when another session
describes one of them differently. `ListFreshness` says how long a list holds; the task of the session lists when it is woken. Knows no
lifecycle and no call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from callgate._clock import Clock
from callgate._secret_redaction import RedactedLog
from callgate.errors import UsageError
from callgate.mcp._connection import McpError, NotSent
from callgate.mcp._list_freshness import ListFreshness
from callgate.mcp._session import Session
from callgate.mcp._tool_changes import Definition
from callgate.mcp.server_config import McpServer

__all__ = ["SessionTools", "ToolRefresh"]

_SETTLE_S = 0.05
"""How long notices about changed tools are collected before the tools are listed again."""
_LIST_EVERY_S = 1.0
"""The least time between two of these lists."""
_LOOK_AGAIN_S = 10.0
"""The least time between two lists that are requested because a tool is described differently than in another session."""
_LIST_WAIT_S = 2.0
"""The longest time that a caller waits for a current list."""


class SessionTools(Protocol):
    """The tools as the server lists them in one session."""

    async def refresh(self, session: Session) -> None:
        """List the tools again.

        Raises:
            McpError: The server does not list its tools.
        """
        ...

    def check(self, definition: Definition) -> None:
        """Raise if a tool may no longer be called as it was described when its call was judged.

        Raises:
            NotSent: The server describes the tool differently, or does not have it.
        """
        ...

    def handle_problem(self, why: str) -> None:
        """Handle that the session does not run, and why."""
        ...


class ToolRefresh:
    """Lists the tools of one session, and lists them again when that is needed.

    Args:
        tools: Lists the tools.
        wake: Called when the tools are to be listed again; the task of the session then calls `list_again`.
    """

    def __init__(self, server: McpServer, clock: Clock, log: RedactedLog, tools: SessionTools, wake: Callable[[], None]) -> None:
        self.requested = False
        """Whether the tools are to be listed again."""
        self._server = server
        self._clock = clock
        self._log = log
        self._tools = tools
        self._wake = wake
        self._freshness = ListFreshness(clock)
        self._listed_at = -_LOOK_AGAIN_S
        """The time of the last list of changed tools."""
        self._listed = asyncio.Event()
        """Cleared while the tools are to be listed again."""

    @property
    def due_s(self) -> float | None:
        """Seconds until the tools are listed again even if nobody needs them; None if they never are."""
        return self._freshness.due_s

    @property
    def may_be_wrong(self) -> bool:
        """Whether the tools are to be listed again because the server does not know one of them."""
        return self._freshness.may_be_wrong

    def request(self) -> None:
        """Have the tools listed again soon."""
        self.requested = True
        self._listed.clear()
        self._wake()

    def request_if_stale(self) -> bool:
        """Have the tools listed again if their list no longer holds, and return whether that is so. Does not wait for the list."""
        stale = self._freshness.is_stale
        if stale:
            self.request()
        return stale

    async def offers(self, definition: Definition) -> bool:
        """Return whether a tool is described in this session as it was when its call was judged.

        If it is not, the tools are listed again, at most every 10 s.
        """
        if not self._describes(definition) and self._clock.monotonic() - self._listed_at >= _LOOK_AGAIN_S:
            self.request()
            await self.wait_until_listed()
        return self._describes(definition)

    def _describes(self, definition: Definition) -> bool:
        try:
            self._tools.check(definition)
        except NotSent:
            return False
        return True

    async def wait_until_listed(self) -> None:
        """Wait, at most `_LIST_WAIT_S`, until a requested list of tools has arrived: a slow server must not delay callers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LIST_WAIT_S):
                await self._listed.wait()

    async def list_now(self, session: Session) -> None:
        """List the tools now.

        Raises:
            McpError: The server does not list its tools.
        """
        try:
            await self._tools.refresh(session)
        finally:
            self._freshness.note(session.tools_ttl_s, told_of_changes=session.tells_changed_tools)
            self._listed.set()

    async def list_again(self, session: Session) -> None:
        """List the tools that have changed, not too often. A server that does not list them keeps those that it had."""
        await self._clock.sleep(max(_SETTLE_S, self._listed_at + _LIST_EVERY_S - self._clock.monotonic()))
        self.requested, self._listed_at = False, self._clock.monotonic()
        try:
            async with asyncio.timeout(self._server.start_timeout_s):
                await self.list_now(session)
        except (McpError, TimeoutError, UsageError) as error:
            self._log.warning("MCP server %s: its changed tools could not be listed: %s", self._server.name, error)
