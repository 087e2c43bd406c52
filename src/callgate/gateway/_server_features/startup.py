"""Whether the servers of a gateway's engine have started, and how they are replaced.

Clients are served meanwhile: what does not need the servers is answered at once, and the rest waits here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.gateway._server_features.changes import Changes
from callgate.gateway._server_features.operator_tools import OPERATOR_TOOLS

if TYPE_CHECKING:
    from callgate.mcp import McpServer
    from callgate.plugins import Plugin

__all__ = ["Startup"]

log = logging.getLogger("callgate")


class Startup:
    """Starts the servers of one engine, once.

    Args:
        changes: Told of what changes from then on.
    """

    def __init__(self, engine: Engine, changes: Changes) -> None:
        self._engine = engine
        self._changes = changes
        self.ended = False
        """Whether each server has listed its tools or has failed."""

    async def wait(self) -> None:
        """Start the servers, or wait until they have started.

        Raises:
            UsageError: A server with `required=True` cannot be started, a rule is about something that no tool has, or a tool has the
                name of one of the gateway's own.
        """
        if self.ended:
            return
        await self._engine.start()
        taken = self._taken_names()
        if taken:
            raise UsageError(f"{taken[0]} is the name of a tool of the gateway for operators. Give the tool or its server a prefix.")
        self.ended = True
        self._engine.tools.on_change(self._tell_tools_changed)
        for server in self._engine.mcp_servers():
            server.on_change(self._changes.take_notice)

    async def wait_at_most(self, wait_s: float) -> None:
        """Wait until the servers have started or have failed, but no longer than this."""
        if not self.ended and self._engine.mcp_servers():
            with suppress(TimeoutError, UsageError):
                async with asyncio.timeout(wait_s):
                    await self.wait()

    async def change(self, add: Collection[McpServer | Plugin], remove: Collection[str]) -> None:
        """Replace servers; see `Engine.change_servers`. Calls of removed ones may still run after that."""
        await self.wait()
        await self._engine.change_servers(add=add, remove=remove, until_ended=False)
        added = {one.name for one in add}
        for server in self._engine.mcp_servers():
            if server.name in added:
                server.on_change(self._changes.take_notice)
        self._changes.list_changed("prompts")
        self._changes.list_changed("resources")

    def _taken_names(self) -> list[str]:
        return sorted(tool.name for tool in self._engine.tools if tool.name in OPERATOR_TOOLS)

    def _tell_tools_changed(self) -> None:
        for name in self._taken_names():
            log.error("The tool %s is not offered: the gateway has a tool with this name for operators. Give its server a prefix", name)
        self._changes.list_changed("tools")
