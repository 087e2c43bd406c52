"""What the route does with the calls of one tool, worked out once, when the tool is registered.

So a stage that a tool does not use costs its calls nothing: no hook that could match is looked for, no resource is computed for a tool that
declares none, nothing is captured for undo where nobody undoes. What the tool itself declares stands in its `BoundTool`; a plan adds what
the engine makes of it. Knows no call.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from callgate._limits import Limits
from callgate._pipeline.concurrency import Slots
from callgate._pipeline.hooks import HookChain
from callgate._pipeline.options import check_policies
from callgate._redact import RedactedLog
from callgate._runners import Runners
from callgate.hooks import Hook
from callgate.protocols import CallJudge, Policy, Start
from callgate.tools import BoundTool, Tool

__all__ = ["ToolPlan", "ToolPlans"]

_MADE_LATE = frozenset({"thread", "process"})
_NEVER_CLAIM = frozenset({"inline", "thread"})


class ToolPlan(Struct, frozen=True, kw_only=True, eq=False):
    """The plan of one tool."""

    tool: BoundTool
    hooks: HookChain
    """The hooks that match it."""
    slots: Slots
    """Where its calls take a slot to run in."""
    reads_only: bool
    """Whether it has no effect, so that its calls are neither remembered nor counted as writes."""
    start: Start | None
    """Starts an attempt; None where its runner is made when it is first needed."""
    claims: bool
    """Whether its runner claims each attempt before it enters the tool's code."""
    counted: bool
    """Whether its calls count against a limit of dangerous calls."""
    declares: bool
    """Whether it declares the resources that it touches."""
    captures: bool
    """Whether what its calls write is kept, so that it can be undone."""


class ToolPlans:
    """The plans of one engine.

    Args:
        hooks: The host's.
        policies: The host's; each may refuse a tool.
        runners: Run the tools.
        limits: Of these, how many calls run at once, and how many dangerous ones a tick may have.
        log: Warned about results that cannot be kept.
        persists: Whether there is a persistent cache.
        captures: Whether calls can be undone.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        policies: Sequence[Policy | CallJudge],
        runners: Runners,
        limits: Limits,
        log: RedactedLog,
        *,
        persists: bool,
        captures: bool,
    ) -> None:
        self._hooks = hooks
        self._policies = policies
        self._runners = runners
        self._limits = limits
        self._log = log
        self._persists = persists
        self._captures = captures
        self._all_slots = Slots(limits.parallel_calls)
        self._warned: set[str] = set()
        """Tools of which was said that their results cannot be kept."""
        self.by_identity: dict[str, ToolPlan] = {}
        """The plans by `BoundTool.identity`."""

    def check_runner(self, tool: Tool) -> None:
        """Refuse a tool that its runner could not run.

        Raises:
            UsageError: It could not.
        """
        if tool.runner is not None:
            self._runners.check(tool.runner, tool)

    def register(self, tools: Sequence[BoundTool]) -> None:
        """Make the plans of tools that are registered.

        Args:
            tools: All that are; those that have a plan keep it.

        Raises:
            UsageError: A policy names what these tools do not have.
        """
        check_policies(self._policies, tools)
        for tool in tools:
            known = self.by_identity.get(tool.identity)
            if known is None or known.tool is not tool:
                self._warn_unkept(tool)
                self.by_identity[tool.identity] = self._plan(tool)

    def _plan(self, tool: BoundTool) -> ToolPlan:
        reads_only = tool.effect == "none"
        return ToolPlan(
            tool=tool,
            hooks=HookChain.of(self._hooks, tool),
            slots=self._all_slots if tool.parallel is None else Slots(tool.parallel, self._all_slots),
            reads_only=reads_only,
            start=None if tool.runner in _MADE_LATE else self._runners.start(tool.runner),
            claims=not reads_only and tool.runner not in _NEVER_CLAIM and self._runners.claims(tool.runner),
            counted=tool.category == "dangerous" and self._limits.dangerous_per_tick is not None,
            declares=tool.tool.reads is not None or tool.tool.writes is not None,
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
