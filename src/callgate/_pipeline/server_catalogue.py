"""What the tool servers of one engine offer, as one catalogue: each tool under a name that no other tool has.

A server's tools may change at any time. `Catalogue` registers those that can be used, and keeps the reason for those that cannot, which
`resolve` tells a model that calls them. Policies are checked against the tools of all servers once every server has listed its tools; from
then on, a tool that does not fit them is not registered. Starts nothing, and knows no protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy

from msgspec import Struct

from callgate._clock import Clock
from callgate._option_checks import shown
from callgate._pipeline.engine_options import check_policies
from callgate._pipeline.tool_plan import ToolPlans
from callgate._run_state.recorder import Recorder
from callgate._secret_redaction import RedactedLog
from callgate.errors import UsageError
from callgate.protocols import CallJudge, Policy, ServerStatus, ToolServer, WithServers
from callgate.tools import BoundTool, Tool, ToolRegistry
from callgate.tools.prefixed_names import prefixed_name
from callgate.tools.registry import Layer, ToolOrigin, prepared_tool

__all__ = ["Catalogue", "ServerOffer", "ServerTools"]


class ServerTools(Struct, eq=False):
    """The tools of one server."""

    server: ToolServer
    tools: tuple[Tool, ...] | None = None
    """What is offered; None until the server has listed its tools."""
    prepared: Mapping[Tool, BoundTool] = {}
    """Tools that will be offered next."""
    withdrawn: Mapping[str, str] = {}
    """Why names cannot be called."""
    named: dict[str, str] = {}
    """The names under which the tools were registered last, by the names that the server gives them."""
    kept: dict[str, str] = {}
    """The names that stay with tools, also while they are not offered."""

    def follow(self, earlier: ServerTools) -> None:
        """Report the tools of an earlier server of this name as unavailable, until this one has listed its own."""
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
        self._suspended = False
        self.offers = [ServerTools(server) for server in servers]

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

    def check_servers(self, servers: Sequence[ServerStatus]) -> None:
        """Check the policies against servers that have started.

        Raises:
            UsageError: A policy refuses one of them.
        """
        for policy in self._policies:
            if isinstance(policy, WithServers):
                policy.check_servers(servers)

    def check_late(self) -> None:
        """Check the policies if the last of the servers has listed its tools after the start. It is too late to refuse anything."""
        if self._keeps_names and not (self._checks or self._suspended) and all(one.tools is not None for one in self.offers):
            try:
                self.check_all()
            except UsageError as error:
                self.log.error("%s", error)

    @contextmanager
    def suspend_checks(self) -> Iterator[None]:
        """Register tools without checking the policies against them in the block, whose policies may be about tools of servers that only
        start. If the block fails, they are checked as before."""
        before, self._checks, self._suspended = self._checks, False, True
        try:
            yield
        except BaseException:
            self._checks = before
            raise
        finally:
            self._suspended = False

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
        """Release the names of the tools of servers that were removed without a successor."""
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

    def _names_of(self, layer: Layer, refused: dict[str, str]) -> dict[Tool, ToolOrigin]:
        """Return the tools of the servers of a layer, each under its name in the registry, with its server."""
        taken, named, withheld = {tool.name for tool in self._registry if tool.layer != layer}, dict[Tool, ToolOrigin](), set[str]()
        for one in self.offers:
            if one.server.layer == layer and one.tools is not None:
                kept = {name for other in self.offers if other is not one for name in other.kept.values()}
                found = _take_names(one, taken, kept | withheld, refused)
                one.named = {own: tool.name for own, tool in found.items()}
                if self._keeps_names:
                    one.kept = one.kept | one.named
                named |= {tool: ToolOrigin(one.server.name, own) for own, tool in found.items()}
            withheld |= one.withdrawn.keys()
        return named

    def tell_reasons(self) -> None:
        """Tell `resolve` why names cannot be called."""
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


class ServerOffer:
    """Takes what one server offers into the catalogue. Implements `ToolCatalogue`.

    The tools of a server that is not in the catalogue, because it only starts or has been replaced, are kept, and nobody is offered them.
    """

    def __init__(self, own: ServerTools, catalogue: Catalogue) -> None:
        self.log, self.clock, self.late = catalogue.log, catalogue.clock, catalogue.late
        self._own = own
        self._catalogue = catalogue

    def prepare(self, server: str, tools: Sequence[Tool]) -> None:
        own = self._own.server
        found = {tool: prepared_tool(tool, own.layer, ToolOrigin(own.name, tool.name)) for tool in tools}
        self._own.prepared = {tool: bound for tool, bound in found.items() if bound is not None}

    def offer(self, server: str, tools: Sequence[Tool]) -> None:
        self._own.tools = tuple(tools)
        if self._own in self._catalogue.offers:
            self._catalogue.register()
            self._own.prepared = {}
            self._catalogue.check_late()

    def withdraw(self, server: str, reasons: Mapping[str, str]) -> None:
        own = self._own
        own.withdrawn = dict(reasons)
        left = tuple(tool for tool in own.tools or () if tool.name not in reasons)
        is_less = len(left) != len(own.tools or ())
        if is_less:
            own.tools = left
        if own in self._catalogue.offers:
            self._catalogue.register() if is_less else self._catalogue.tell_reasons()
