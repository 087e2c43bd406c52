"""Replace the tool servers of an engine while it runs, one change after the other.

A server that replaces another starts beside it, so that there is always one of them to call. One that cannot run twice at the same time is
started again when the other has ended, and each change lets all servers that could not be started try again. Running calls of a removed
server may still end. Knows no protocol and no configuration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from callgate._option_checks import shown
from callgate._pipeline.running_calls import RunningCalls
from callgate._pipeline.tool_servers import ToolServers
from callgate.errors import UsageError
from callgate.protocols import ToolServer
from callgate.tools import BoundTool

__all__ = ["ServerChanges"]

log = logging.getLogger("callgate")


class ServerChanges:
    """Adds and removes the servers of one engine."""

    def __init__(self, servers: ToolServers, running: RunningCalls, check_unclosed: Callable[[], None]) -> None:
        self._servers = servers
        self._running = running
        self._check_unclosed = check_unclosed
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Future[None]] = set()

    async def change(self, add: Sequence[ToolServer], remove: Collection[str], wait_s: float, *, until_ended: bool = True) -> None:
        """Start servers, then remove others by name; see `Engine.change_servers`."""
        async with self._one_at_a_time:
            await self._servers.start()
            leaving = [self._servers.get(name) for name in dict.fromkeys(remove)]
            self._refuse_taken(add, leaving)
            unregistered = await self._servers.replace(leaving, add, self._check_unclosed)
            replacing = [server for server in add if server.name in remove]
            ending = asyncio.ensure_future(self._end(leaving, unregistered, wait_s))
            retrying = asyncio.ensure_future(self._retry_after(ending, replacing))
            self._keep(ending)
            self._keep(retrying)
            if until_ended or self._servers.have_problem(replacing):
                await asyncio.shield(retrying)
            self._keep(asyncio.ensure_future(self._retry_after(retrying, self._servers)))  # nobody has to wait for a server that hangs

    async def _retry_after(self, ending: asyncio.Future[None], servers: Iterable[ToolServer]) -> None:
        """Retry servers that could not be started, when others have ended, which may have kept them from that."""
        await asyncio.shield(ending)
        await self._servers.retry(servers)

    def _keep(self, work: asyncio.Future[None]) -> None:
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    def _refuse_taken(self, add: Sequence[ToolServer], leaving: Collection[ToolServer]) -> None:
        taken = [server.name for server in self._servers if server not in leaving]
        for server in add:
            if server.name in taken:
                raise UsageError(f"The engine has a server {shown(server.name)} already. Remove it in the same change, or rename one.")

    async def _end(self, servers: Collection[ToolServer], tools: Collection[BoundTool], wait_s: float) -> None:
        calls = self._running.by_uid.values()
        uids = [state.uid for state in calls if state.judged is not None and any(state.judged.tool is one for one in tools)]
        left = await self._running.wait_for(uids, wait_s)
        if left:
            log.warning("%d calls of removed tools did not end within %g s", len(left), wait_s)
        await self._servers.end(servers)
