"""The tool servers of one engine: started together, closed together, and what they offer made one catalogue.

A server's tools may change at any time. `Catalogue` gives each a name that no other tool has, registers those that can be used, and keeps
the reason for those that cannot, which `resolve` tells a model that calls them. Policies are checked against the tools of all servers once
every server has listed its tools; from then on, a tool that does not fit them is not registered. Knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from copy import copy

from callgate._clock import Clock
from callgate._option_checks import shown
from callgate._pipeline.engine_options import check_policies
from callgate._pipeline.tool_plan import ToolPlans
from callgate._run_state.recorder import Recorder
from callgate._secret_redaction import RedactedLog
from callgate.errors import UsageError
from callgate.protocols import CallJudge, Policy, ReportsStatus, ServerStatus, ToolServer
from callgate.tools import BoundTool, Tool, ToolRegistry
from callgate.tools.prefixed_names import prefixed_name
from callgate.tools.registry import Layer, prepared_tool

__all__ = ["Catalogue", "ToolServers"]


class Catalogue:
    """The tools that servers offer, in the engine's registry. Implements `ToolCatalogue`.

    Args:
        servers: The servers, in the order in which they get names.
    """

    def __init__(
        self,
        servers: Sequence[ToolServer],
        registry: ToolRegistry,
        plans: ToolPlans,
        policies: Sequence[Policy | CallJudge],
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self.log: RedactedLog = recorder.log
        self.clock = clock
        self.late = recorder.late
        self.servers = list(servers)
        self._registry = registry
        self._plans = plans
        self._policies = policies
        self._offered: dict[str, tuple[Tool, ...]] = {}
        self._prefixable: dict[str, bool] = {}
        self._withdrawn: dict[str, Mapping[str, str]] = {}
        """Why names cannot be called, by server."""
        self._refused: dict[str, Mapping[str, str]] = {}
        """Why tools could not be registered, by layer."""
        self._seen: dict[str, BoundTool] = {}
        """The latest tool of each name that a server has offered; rules about one that is gone are still about a known tool."""
        self._prepared: dict[str, Mapping[Tool, BoundTool]] = {}
        """Tools that will be offered next, by server."""
        self._checks = not servers

    def check(self, tools: Sequence[BoundTool]) -> None:
        """Make the plans of registered tools, and check the policies against them.

        Raises:
            UsageError: A policy could never have the effect that it describes.
        """
        if self._checks:
            gone = [tool for name, tool in self._seen.items() if name not in self._registry]
            check_policies(self._policies, (*tools, *gone))
        self._plans.make(tools)

    def check_all(self) -> None:
        """Check the policies against all tools, from now on, if every server has listed its tools and none of them is withheld.

        Raises:
            UsageError: A policy could never have the effect that it describes.
        """
        if self._checks:
            return
        silent = [server.name for server in self.servers if server.name not in self._offered]
        if silent:
            self.log.warning("The rules about tools of %s are not checked, because their tools are not known yet", ", ".join(silent))
            return
        try:
            check_policies(self._policies, tuple(self._registry))
        except UsageError as error:
            withheld = sorted({name for reasons in self._withdrawn.values() for name in reasons if name})
            if not withheld:
                raise
            self.log.warning("%s That may be because of tools that are withheld: %s", error, shown(", ".join(withheld)))
            return
        self._checks = True

    def prepare(self, server: str, tools: Sequence[Tool]) -> None:
        layer = next(one.layer for one in self.servers if one.name == server)
        found = {tool: prepared_tool(tool, layer) for tool in tools}
        self._prepared[server] = {tool: bound for tool, bound in found.items() if bound is not None}

    def offer(self, server: str, tools: Sequence[Tool], *, may_rename: bool = True) -> None:
        self._offered[server] = tuple(tools)
        self._prefixable[server] = may_rename
        self._register()
        self._prepared.pop(server, None)

    def suspend_checks(self) -> None:
        """Register tools without checking the policies against them, until `check_all`."""
        self._checks = False

    def forget(self, servers: Collection[ToolServer]) -> list[BoundTool]:
        """Remove servers and their tools; return the tools that are no longer registered."""
        before = list(self._registry)
        for server in servers:
            self.servers.remove(server)
            for tool in self._offered.pop(server.name, ()):
                self._seen.pop(tool.name, None)
                self._seen.pop(prefixed_name(server.name, tool.name), None)
            self._prefixable.pop(server.name, None)
            self._withdrawn.pop(server.name, None)
            self._prepared.pop(server.name, None)
        for layer in {server.layer for server in servers}:
            self._refused.pop(layer, None)
        self._register({server.layer for server in servers})
        return [tool for tool in before if self._registry.get(tool.name) is not tool]

    def count(self, server: str) -> int:
        """Return how many tools a server offers."""
        return len(self._offered.get(server, ()))

    def withdraw(self, server: str, reasons: Mapping[str, str]) -> None:
        self._withdrawn[server] = dict(reasons)
        gone = {tool.name for tool in self._offered.get(server, ())} & reasons.keys()
        if gone:
            self._offered[server] = tuple(tool for tool in self._offered[server] if tool.name not in gone)
            self._register()
        self._tell_reasons()

    def _register(self, emptied: Iterable[Layer] = ()) -> None:
        """Register the tools of all servers again, in the order of the servers, so that names do not depend on which was the fastest.

        Args:
            emptied: Layers that may have no server any longer.
        """
        prepared = {tool: bound for found in self._prepared.values() for tool, bound in found.items()}
        for layer in dict.fromkeys((*(server.layer for server in self.servers), *emptied)):
            taken = {tool.name for tool in self._registry if tool.layer != layer}
            named: list[Tool] = []
            refused: dict[str, str] = {}
            for server in self.servers:
                if server.layer == layer:
                    named += self._named(server.name, taken, refused)
            refused |= self._registry.replace(layer, named, self.check, prepared)
            for name, why in refused.items():
                self.log.warning("The tool %s cannot be used: %s", shown(name), why)
            self._seen |= {tool.name: tool for tool in self._registry if tool.layer == layer}
            self._refused[layer] = refused
        self._tell_reasons()

    def _tell_reasons(self) -> None:
        """Let `resolve` know why names cannot be called."""
        told = (*self._withdrawn.values(), *self._refused.values())
        self._registry.withdrawn = {name: why for reasons in told for name, why in reasons.items() if name}
        self._registry.unavailable = {server: reasons[""] for server, reasons in self._withdrawn.items() if "" in reasons}

    def _named(self, server: str, taken: set[str], refused: dict[str, str]) -> list[Tool]:
        """Return a server's tools under names that are not taken, which are then taken."""
        found: list[Tool] = []
        for tool in self._offered.get(server, ()):
            name = tool.name
            if name in taken and self._prefixable[server]:
                name = prefixed_name(server, name)
            if name in taken:
                refused.setdefault(name, f"Another tool has the name '{name}' already. Give the server another name, or prefix=True.")
                continue
            taken.add(name)
            found.append(tool if name == tool.name else _renamed(tool, name))
        return found


def _renamed(tool: Tool, name: str) -> Tool:
    other = copy(tool)
    other.name = name
    return other


class ToolServers:
    """The servers of one engine, and whether they have been started."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._starting: asyncio.Task[None] | None = None
        self._removed: list[ToolServer] = []
        """Servers that still end."""
        self.settled = not catalogue.servers
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
        await asyncio.shield(self._starting)

    def __iter__(self) -> Iterator[ToolServer]:
        return iter(tuple(self._catalogue.servers))

    def statuses(self) -> list[ServerStatus]:
        """Return the state of each server."""
        return [self._status(server, self._catalogue.count(server.name)) for server in self]

    def _status(self, server: ToolServer, tools: int) -> ServerStatus:
        if isinstance(server, ReportsStatus):
            return server.status(tools)
        return ServerStatus(name=server.name, state="unknown", tools=tools)

    def named(self, name: str) -> ToolServer:
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
            await self._started(tuple(self))
            self._catalogue.check_all()
        finally:
            self.settled = True

    async def _started(self, servers: Iterable[ToolServer]) -> None:
        ends = await asyncio.gather(*(server.start(self._catalogue) for server in servers), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    # Changes while the engine runs

    def begin_change(self, servers: Collection[ToolServer]) -> list[BoundTool]:
        """Remove servers and their tools, which end later by `end`; return the tools that can no longer be called.

        The policies are not checked against the tools until `add`.
        """
        self._catalogue.suspend_checks()
        self._removed += servers
        return self._catalogue.forget(servers)

    async def add(self, servers: Sequence[ToolServer]) -> None:
        """Start further servers at the same time, and check the policies against all tools.

        Raises:
            UsageError: A server that is required could not be started, or a rule is about something that no tool has.
        """
        self._catalogue.servers += servers
        await self._started(servers)
        self._catalogue.check_all()

    async def end(self, servers: Iterable[ToolServer]) -> None:
        """End servers that were removed, in bounded time."""
        listed = tuple(servers)
        await self._closed(listed)
        self._removed = [server for server in self._removed if server not in listed]

    async def close(self) -> None:
        """End all servers, in bounded time."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        await self._closed((*self, *self._removed))

    async def _closed(self, servers: Iterable[ToolServer]) -> None:
        for end in await asyncio.gather(*(server.close() for server in servers), return_exceptions=True):
            if isinstance(end, Exception):
                self._catalogue.log.error("A tool server could not be closed", error=end)
