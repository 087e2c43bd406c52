"""Compute how the route handles the calls of one tool, once, when the tool is registered.

A feature that a tool does not use therefore costs its calls nothing: no search for matching hooks, no resources of a tool that declares
none, and no capture for undo if undo is not used. `BoundTool` holds the tool's own declarations; a plan adds the engine's decisions about
them. Knows no call.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from callgate._engine_limits import Limits
from callgate._pipeline.call_hooks import HookChain
from callgate._pipeline.call_order import UNDECLARED_EFFECT, UNDECLARED_READ, Footprint
from callgate._pipeline.concurrency_limit import ConcurrencyLimit
from callgate._runners import Runners
from callgate._secret_redaction import RedactedLog
from callgate.hooks import Hook
from callgate.protocols import Start
from callgate.tools import BoundTool, Tool

__all__ = ["ToolPlan", "ToolPlans"]

_MADE_LATE = frozenset({"thread", "process"})
_NEVER_CLAIM = frozenset({"inline", "thread"})


class ToolPlan(Struct, frozen=True, kw_only=True, eq=False):
    """The plan of one tool."""

    tool: BoundTool
    hooks: HookChain
    """The hooks that match the tool."""
    limit: ConcurrencyLimit
    """Limits how many of its calls run at the same time."""
    reads_only: bool
    """Whether the tool has no effect, so that its calls are neither remembered nor treated as writes."""
    start: Start | None
    """Starts an attempt; None if the tool's runner is made on first use."""
    claims: bool
    """Whether the tool's runner claims each attempt (records that a worker has accepted it) before the tool's code is entered."""
    counted: bool
    """Whether the tool's calls count towards the limit of dangerous calls."""
    declares: bool
    """Whether the tool declares the resources that it touches."""
    footprint: Footprint | None
    """What each of its calls touches; None if that depends on the call's arguments."""
    captures: bool
    """Whether the writes of its calls are captured, so that they can be undone."""


class ToolPlans:
    """The plans of one engine.

    Args:
        hooks: The host's hooks.
        runners: Run the tools.
        limits: Uses the limits of concurrent calls and of dangerous calls per tick (`Scope.tick`).
        log: Receives warnings about results that cannot be cached persistently.
        persists: Whether there is a persistent cache.
        captures: Whether calls can be undone.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        runners: Runners,
        limits: Limits,
        log: RedactedLog,
        *,
        persists: bool,
        captures: bool,
    ) -> None:
        self._hooks = hooks
        self._runners = runners
        self._limits = limits
        self._log = log
        self._persists = persists
        self._captures = captures
        self._limit_of_all = ConcurrencyLimit(limits.parallel_calls)
        self._warned: set[str] = set()
        """The tools for which the warning about results that cannot be cached persistently was logged."""
        self.by_identity: dict[str, ToolPlan] = {}
        """The plans by `BoundTool.identity`."""

    def check_runner(self, tool: Tool) -> None:
        """Refuse a tool that its runner could not run.

        Raises:
            UsageError: The runner cannot run the tool.
        """
        if tool.runner is not None:
            self._runners.check(tool.runner, tool)

    def make(self, tools: Sequence[BoundTool]) -> None:
        """Make the plans of registered tools. Those with a plan keep it."""
        for tool in tools:
            known = self.by_identity.get(tool.identity)
            if known is None or known.tool is not tool:
                self._warn_unkept(tool)
                self.by_identity[tool.identity] = self._plan(tool)

    def _plan(self, tool: BoundTool) -> ToolPlan:
        reads_only = tool.effect == "none"
        declares = tool.tool.reads is not None or tool.tool.writes is not None
        undeclared = UNDECLARED_READ if reads_only else UNDECLARED_EFFECT
        return ToolPlan(
            tool=tool,
            hooks=HookChain.of(self._hooks, tool),
            limit=self._limit_of_all if tool.parallel is None else ConcurrencyLimit(tool.parallel, self._limit_of_all),
            reads_only=reads_only,
            start=None if tool.runner in _MADE_LATE else self._runners.start(tool.runner),
            claims=not reads_only and tool.runner not in _NEVER_CLAIM and self._runners.claims(tool.runner),
            counted=tool.category == "dangerous" and self._limits.dangerous_per_tick is not None,
            declares=declares,
            footprint=None if declares else undeclared,
            captures=self._captures and not reads_only,
        )

    def _warn_unkept(self, tool: BoundTool) -> None:
        if tool.cache_scope == "persistent" and not self._persists and tool.name not in self._warned:
            self._warned.add(tool.name)
            self._log.warning(
                "Results of the tool %s are to outlive the process (cache_scope='persistent'), but there is nowhere to keep them: they live"
                " as long as the engine. Give Engine(persistent_cache=SqliteCache(path)), or a journal in a file.",
                tool.name,
            )
