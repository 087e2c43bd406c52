"""The tool servers of one engine: started together, closed together, and what they offer made one catalogue.

A server's tools may change at any time. `Catalogue` gives each a name that no other tool has, registers those that can be used, and keeps
the reason for those that cannot, which `resolve` tells a model that calls them. Policies are checked against the tools of all servers once
every server has listed its tools; from then on, a tool that does not fit them is not registered. A server that replaces another starts
beside it, and their tools are exchanged in one step. Knows no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from copy import copy

from callgate._clock import Clock
from callgate._option_checks import shown
from callgate._pipeline.engine_options import check_policies
from callgate._pipeline.tool_plan import ToolPlans
from callgate._run_state.recorder import Recorder
from callgate._secret_redaction import RedactedLog
from callgate.errors import UsageError
from callgate.protocols import CallJudge, Policy, ReportsStatus, RetriesStart, ServerStatus, ToolServer
from callgate.tools import BoundTool, Tool, ToolRegistry
from callgate.tools.prefixed_names import prefixed_name
from callgate.tools.registry import Layer, prepared_tool

__all__ = ["Catalogue", "ToolServers"]


class ServerTools:
    """The tools of one server. Implements `ToolCatalogue`.

    Those of a server that is not in the catalogue, because it only starts or has been replaced, are kept here and nobody is offered them.
    """

    def __init__(self, server: ToolServer, catalogue: Catalogue) -> None:
        self.log, self.clock, self.late = catalogue.log, catalogue.clock, catalogue.late
        self.server = server
        self.tools: tuple[Tool, ...] | None = None
        """What is offered; None until the server has listed its tools."""
        self.prepared: Mapping[Tool, BoundTool] = {}
        """Tools that will be offered next."""
        self.withdrawn: Mapping[str, str] = {}
        """Why names cannot be called."""
        self.named: dict[str, str] = {}
        """The names under which the tools were registered last, by the names that the server gives them."""
        self.kept: dict[str, str] = {}
        """The names that stay with tools, also while they are not offered."""
        self._catalogue = catalogue

    def prepare(self, server: str, tools: Sequence[Tool]) -> None:
        found = {tool: prepared_tool(tool, self.server.layer) for tool in tools}
        self.prepared = {tool: bound for tool, bound in found.items() if bound is not None}

    def offer(self, server: str, tools: Sequence[Tool]) -> None:
        self.tools = tuple(tools)
        if self in self._catalogue.offers:
            self._catalogue.register()
            self.prepared = {}

    def withdraw(self, server: str, reasons: Mapping[str, str]) -> None:
        self.withdrawn = dict(reasons)
        left = tuple(tool for tool in self.tools or () if tool.name not in reasons)
        is_less = len(left) != len(self.tools or ())
        if is_less:
            self.tools = left
        if self in self._catalogue.offers:
            self._catalogue.register() if is_less else self._catalogue.tell_reasons()

    def follow(self, earlier: ServerTools) -> None:
        """Say of the tools of an earlier server of this name why they cannot be called, until this one has listed its own."""
        self.named, self.kept = earlier.named, earlier.kept

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why names cannot be called: those that are withdrawn, and those of an earlier server whose successor has no tools yet."""
        if self.tools is not None:
            return self.withdrawn
        why = self.withdrawn.get("") or f"The server {shown(self.server.name)} is started again."
        return {**dict.fromkeys(self.named.values(), why), **self.withdrawn}


class Catalogue:
    """The tools that servers offer, in the engine's registry.

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
        self._registry = registry
        self._plans = plans
        self._policies = policies
        self._refused: dict[str, Mapping[str, str]] = {}
        """Why tools could not be registered, by layer."""
        self._seen: dict[str, BoundTool] = {}
        """The latest tool of each name that a server has offered; rules about one that is gone are still about a known tool."""
        self._checks = self._keeps_names = not servers
        self.offers = [ServerTools(server, self) for server in servers]

    def check(self, tools: Sequence[BoundTool]) -> None:
        """Make the plans of registered tools, and check the policies against them.

        Raises:
            UsageError: A policy could never have the effect that it describes.
        """
        if self._checks:
            gone = [tool for name, tool in self._seen.items() if name not in self._registry]
            check_policies(self._policies, (*tools, *gone))
        self._plans.make(tools)

    def keep_names(self) -> None:
        """From now on, the name of a tool stays with it while its server is there: a model, a rule or an approval means that tool by it."""
        self._keeps_names = True
        for one in self.offers:
            one.kept = one.kept | one.named

    def check_all(self) -> None:
        """Check the policies against all tools, from now on, if every server has listed its tools and none of them is withheld.

        Raises:
            UsageError: A policy could never have the effect that it describes.
        """
        if self._checks:
            return
        silent = [one.server.name for one in self.offers if one.tools is None]
        if silent:
            self.log.warning("The rules about tools of %s are not checked, because their tools are not known yet", ", ".join(silent))
            return
        try:
            check_policies(self._policies, tuple(self._registry))
        except UsageError as error:
            withheld = sorted({name for one in self.offers for name in one.withdrawn if name})
            if not withheld:
                raise
            self.log.warning("%s That may be because of tools that are withheld: %s", error, shown(", ".join(withheld)))
            return
        self._checks = True

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        """Register tools without checking the policies against them in the block, whose policies may be about tools of servers that only
        start. If the block fails, they are checked as before."""
        before, self._checks = self._checks, False
        try:
            yield
        except BaseException:
            self._checks = before
            raise

    def replace(self, leaving: Collection[ToolServer], added: Sequence[ServerTools]) -> list[BoundTool]:
        """Remove servers and their tools, put others in their place, and check the policies against all tools: all of it or nothing.

        Returns:
            The tools that are no longer registered.

        Raises:
            UsageError: A policy could never have the effect that it describes. Nothing has changed.
        """
        before, offers, seen = list(self._registry), self.offers, dict(self._seen)
        gone = {one.server.name: one for one in offers if one.server in leaving}
        for one in added:
            if one.server.name in gone:
                one.follow(gone[one.server.name])
        for one in gone.values():
            for name in (*one.named.values(), *(tool.name for tool in one.tools or ())):
                self._seen.pop(name, None)
        self.offers = [*(one for one in offers if one not in gone.values()), *added]
        self._free_names(gone.values())
        layers = {one.server.layer for one in gone.values()}
        self.register(layers)
        try:
            self.check_all()
        except UsageError:
            self.offers, self._seen = offers, seen
            self.register({one.server.layer for one in added})
            raise
        for one in added:
            one.prepared = {}
        return [tool for tool in before if self._registry.get(tool.name) is not tool]

    def _free_names(self, gone: Iterable[ServerTools]) -> None:
        """Let the tools of the remaining servers have the names of those that were removed without a successor."""
        remaining = {one.server.name for one in self.offers}
        freed = {name for one in gone if one.server.name not in remaining for name in one.kept.values()}
        for one in self.offers:
            one.kept = {own: name for own, name in one.kept.items() if own not in freed}

    def register(self, emptied: Iterable[Layer] = ()) -> None:
        """Register the tools of all servers again, in the order of the servers, so that names do not depend on which was the fastest.

        Args:
            emptied: Layers that may have no server any longer.
        """
        prepared = {tool: bound for one in self.offers for tool, bound in one.prepared.items()}
        for layer in dict.fromkeys((*(one.server.layer for one in self.offers), *emptied)):
            refused: dict[str, str] = {}
            named = self._names_of(layer, refused)
            refused |= self._registry.replace(layer, named, self.check, prepared)
            for name, why in refused.items():
                self.log.warning("The tool %s cannot be used: %s", shown(name), why)
            self._seen |= {tool.name: tool for tool in self._registry if tool.layer == layer}
            self._refused[layer] = refused
        self.tell_reasons()

    def _names_of(self, layer: Layer, refused: dict[str, str]) -> list[Tool]:
        """Return the tools of the servers of a layer, each under its name in the registry."""
        taken, named, withheld = {tool.name for tool in self._registry if tool.layer != layer}, list[Tool](), set[str]()
        for one in self.offers:
            if one.server.layer == layer and one.tools is not None:
                kept = {name for other in self.offers if other is not one for name in other.kept.values()}
                found = _take_names(one, taken, kept | withheld, refused)
                one.named = {own: tool.name for own, tool in found.items()}
                if self._keeps_names:
                    one.kept = one.kept | one.named
                named += found.values()
            withheld |= one.withdrawn.keys()
        return named

    def tell_reasons(self) -> None:
        """Let `resolve` know why names cannot be called."""
        told = (*(one.reasons for one in self.offers), *self._refused.values())
        self._registry.withdrawn = {name: why for reasons in told for name, why in reasons.items() if name}
        self._registry.unavailable = {one.server.name: one.withdrawn[""] for one in self.offers if "" in one.withdrawn}


def _take_names(one: ServerTools, taken: set[str], reserved: Collection[str], refused: dict[str, str]) -> dict[str, Tool]:
    """Return a server's tools by the names that it gives them, under names that are not taken, which are then taken.

    Args:
        reserved: Names that tools of other servers have had, or that earlier servers withhold. They are not given to another tool.
    """
    found: dict[str, Tool] = {}
    for tool in one.tools or ():
        name = one.kept.get(tool.name, tool.name)
        if name in taken or (name in reserved and name not in one.kept.values()):
            name = prefixed_name(one.server.name, tool.name)
        if name in taken:
            refused.setdefault(name, f"Another tool has the name '{name}' already. Give the server another name, or prefix=True.")
            continue
        taken.add(name)
        found[tool.name] = tool if name == tool.name else _rename(tool, name)
    return found


def _rename(tool: Tool, name: str) -> Tool:
    other = copy(tool)
    other.name = name
    return other


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
            await self._start_all(self._catalogue.offers)
            self._catalogue.keep_names()
            self._catalogue.check_all()
        finally:
            self.settled = True

    async def _start_all(self, offers: Iterable[ServerTools]) -> None:
        ends = await asyncio.gather(*(one.server.start(one) for one in offers), return_exceptions=True)
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
        offers = [ServerTools(server, self._catalogue) for server in added]
        self._apart += added
        try:
            with self._catalogue.unchecked():
                await self._start_all(offers)
                check()
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
