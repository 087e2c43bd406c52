"""What decides whether a call may run, and what it can say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from callgate.route import ValidatedCall
from callgate.tools.registry import BoundTool

__all__ = [
    "Allow",
    "Ask",
    "Deny",
    "InstantPolicy",
    "JudgmentRequired",
    "Modify",
    "PathFilter",
    "PathPolicy",
    "Policy",
    "RequiresJudge",
    "Verdict",
    "WithTools",
]


class Allow(Struct, frozen=True, kw_only=True):
    """The call may run as it is."""

    rule: str = ""


class Modify(Struct, frozen=True, kw_only=True):
    """The call may run with other arguments; they are validated and judged again, and the model is told."""

    arguments: dict[str, object]
    reason: str
    rule: str = ""


class Deny(Struct, frozen=True, kw_only=True):
    """The call must not run. `reason` is read by the model: say what to do instead."""

    reason: str
    rule: str = ""


class Ask(Struct, frozen=True, kw_only=True):
    """A human has to decide."""

    question: str
    rule: str = ""


class JudgmentRequired(Struct, frozen=True, kw_only=True):
    """The call may run only if a judge allows it; see `callgate.Judge`."""

    rule: str = ""


Verdict = Allow | Modify | Deny | Ask | JudgmentRequired


@runtime_checkable
class Policy(Protocol):
    """Decides whether a validated call may run. Its error and its silence are a deny."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        """Judge these very arguments; must not change them."""
        ...


@runtime_checkable
class InstantPolicy(Policy, Protocol):
    """A policy that answers most calls without waiting: those it is asked about without a clock over it."""

    never_waits: bool

    def judge(self, call: ValidatedCall) -> Verdict | None:
        """What `decide` gives; None where that takes waiting, so that `decide` is asked, with a clock over it."""
        ...


@runtime_checkable
class WithTools(Protocol):
    """A policy that names tools: asked whether they exist when an engine is made, and again when a tool is registered later."""

    def check_tools(self, tools: Sequence[BoundTool]) -> None:
        """Raise `UsageError` where the policy cannot mean what it says, given all the tools that there are."""
        ...


@runtime_checkable
class RequiresJudge(Protocol):
    """A policy that may want calls judged: refused by an engine that has no judge."""

    @property
    def judge_required_by(self) -> str:
        """What of it asks for a judge; empty: nothing does."""
        ...


PathFilter = Callable[[str, int], bool]
"""Whether a call may visit a file, by its real path below the workspace and its size; asked in the tool's own thread."""


@runtime_checkable
class PathPolicy(Protocol):
    """A policy that also judges what a tool comes across: each file that a search reads or a listing names."""

    def path_filter(self, call: ValidatedCall) -> PathFilter | None:
        """What the policy says of files, given that it let this call run; None: it lets the call visit any."""
        ...
