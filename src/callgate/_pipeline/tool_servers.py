"""The tool servers of one engine: started together, replaced while the engine runs, and closed together.

`server_catalogue` makes one catalogue of what they offer. A server that replaces another starts beside it, and their tools are exchanged in
one step. Knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextvars import Context

from callgate._option_checks import shown
from callgate._pipeline.server_catalogue import Catalogue, ServerOffer, ServerTools
from callgate.errors import UsageError
from callgate.protocols import ReportsStatus, RetriesStart, ServerStatus, ToolServer
from callgate.tools import BoundTool

__all__ = ["ToolServers"]


def _note_exception(ended: asyncio.Task[None]) -> None:
    """Mark the exception of a task as seen: each `start` raises it, and there may be none any more."""
    if not ended.cancelled():
        ended.exception()


class ToolServers:
    """The servers of one engine, and whether they have been started."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._starting: asyncio.Task[None] | None = None
        self._apart: list[ToolServer] = []
        """Servers that are not in the catalogue: they start, or they end."""
        self.settled = not catalogue.offers
        """Whether the first start of every server has ended, well or not."""

    async def start(self) -> None:
        """Start all servers at the same time, once, and wait until each has listed its tools or has failed.

        Raises:
            UsageError: A server that is required could not be started, or a rule is about something that no tool has.
        """
        if self.settled and (self._starting is None or self._starting.exception() is None):
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start(), context=Context(), name="callgate tool servers")
            self._starting.add_done_callback(_note_exception)
        await asyncio.shield(self._starting)

    def __iter__(self) -> Iterator[ToolServer]:
        return iter([one.server for one in self._catalogue.offers])

    def statuses(self) -> list[ServerStatus]:
        """Return the state of each server."""
        return [self._status(one.server, len(one.tools or ())) for one in self._catalogue.offers]

    def _status(self, server: ToolServer, tools: int) -> ServerStatus:
        if isinstance(server, ReportsStatus):
            return server.status(tools)
        return ServerStatus(name=server.name, state="unknown", tools=tools)

    def get(self, name: str) -> ToolServer:
        """Return the server with this name.

        Raises:
            UsageError: There is none.
        """
        for server in self:
            if server.name == name:
                return server
        names = ", ".join(server.name for server in self)
        known = f"It has: {names}." if names else "Give it one: Engine(servers=[...])."
        raise UsageError(f"The engine has no server {shown(name)}. {known}")

    async def _start(self) -> None:
        try:
            await self._start_all(self._catalogue.offers)
            self._catalogue.keep_names()
            self._catalogue.check_servers(self.statuses())
            self._catalogue.check_all()
        finally:
            self.settled = True

    async def _start_all(self, offers: Iterable[ServerTools]) -> None:
        ends = await asyncio.gather(*(one.server.start(ServerOffer(one, self._catalogue)) for one in offers), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    # Changes while the engine runs

    async def replace(self, leaving: Collection[ToolServer], added: Sequence[ToolServer], check: Callable[[], None]) -> list[BoundTool]:
        """Start servers at the same time, then put them in the place of others, which `end` ends.

        If that fails, the started servers are ended, and nothing has changed. Returns the tools that cannot be called any longer.

        Args:
            check: Called when the servers have started; raises if it is too late.

        Raises:
            UsageError: A server that is required could not be started, or a rule is about something that no tool has.
        """
        offers = [ServerTools(server) for server in added]
        self._apart += added
        try:
            with self._catalogue.suspend_checks():
                await self._start_all(offers)
                check()
                self._catalogue.check_servers([self._status(one.server, len(one.tools or ())) for one in offers])
                unregistered = self._catalogue.replace(leaving, offers)
        except BaseException:
            await self.end(added)
            raise
        self._apart = [server for server in self._apart if server not in added] + list(leaving)
        return unregistered

    def have_problem(self, servers: Iterable[ToolServer]) -> bool:
        """Return whether one of these servers could not be started."""
        return any(self._status(one, 0).problem for one in servers)

    async def retry(self, servers: Iterable[ToolServer]) -> None:
        """Start servers again that could not be started, at once, because what kept them from that may have ended.

        Twice: the first attempt may have begun before that.
        """
        asked = [one for one in servers if isinstance(one, RetriesStart)]
        for _ in range(2):
            await asyncio.gather(*(one.retry() for one in asked if self._status(one, 0).problem))

    async def end(self, servers: Iterable[ToolServer]) -> None:
        """End servers that are not in the catalogue, in bounded time."""
        listed = tuple(servers)
        await self._close_all(listed)
        self._apart = [server for server in self._apart if server not in listed]

    async def close(self) -> None:
        """End all servers, in bounded time."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        await self._close_all((*self, *self._apart))

    async def _close_all(self, servers: Iterable[ToolServer]) -> None:
        for end in await asyncio.gather(*(server.close() for server in servers), return_exceptions=True):
            if isinstance(end, Exception):
                self._catalogue.log.error("A tool server could not be closed", error=end)
