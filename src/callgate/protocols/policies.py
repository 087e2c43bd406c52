"""The protocol of policies, which decide whether a call may run, and their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from callgate._option_checks import NamedStruct
from callgate.protocols.tool_servers import ServerStatus
from callgate.stage_types import ValidatedCall
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
    "WithServers",
    "WithTools",
]


class Allow(NamedStruct, frozen=True, kw_only=True):
    """The call may run as it is."""

    rule: str = ""


class Modify(NamedStruct, frozen=True, kw_only=True):
    """The call may run with other arguments; they are validated and judged again, and the model is told."""

    arguments: dict[str, object]
    reason: str
    rule: str = ""


class Deny(NamedStruct, frozen=True, kw_only=True):
    """The call must not run. `reason` is read by the model: say what to do instead."""

    reason: str
    rule: str = ""


class Ask(NamedStruct, frozen=True, kw_only=True):
    """A human has to decide."""

    question: str
    rule: str = ""


class JudgmentRequired(Struct, frozen=True, kw_only=True):
    """The call may run only if a judge allows it; see `callgate.Judge`."""

    rule: str = ""


Verdict = Allow | Modify | Deny | Ask | JudgmentRequired


@runtime_checkable
class Policy(Protocol):
    """Decides whether a validated call may run. An exception or a timeout is a deny."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        """Decide on exactly these arguments; must not change them."""
        ...


@runtime_checkable
class InstantPolicy(Policy, Protocol):
    """A policy that decides most calls without waiting."""

    never_waits: bool

    def judge(self, call: ValidatedCall) -> Verdict | None:
        """Return the verdict, or None if that needs waiting; then `decide` is awaited with a deadline."""
        ...


@runtime_checkable
class WithTools(Protocol):
    """A policy that names tools. Checked when an engine is made and when a tool is registered later."""

    def check_tools(self, tools: Sequence[BoundTool]) -> None:
        """Raise `UsageError` if the policy names something that none of these tools has."""
        ...


@runtime_checkable
class WithServers(Protocol):
    """A policy that depends on the tool servers. Checked when the servers of an engine have started, and when others replace them."""

    def check_servers(self, servers: Sequence[ServerStatus]) -> None:
        """Raise `UsageError` if one of the servers that have started must not be used as it is."""
        ...


@runtime_checkable
class RequiresJudge(Protocol):
    """A policy that may return `judge`; an engine without a judge refuses it."""

    @property
    def judge_required_by(self) -> str:
        """The part of the policy that needs a judge; empty if none does."""
        ...


PathFilter = Callable[[str, int], bool]
"""Whether a call may visit a file, by its real path below the workspace and its size; asked in the tool's own thread."""


@runtime_checkable
class PathPolicy(Protocol):
    """A policy that also judges each file that a search reads or a listing names."""

    def path_filter(self, call: ValidatedCall) -> PathFilter | None:
        """Return the check for files that this allowed call visits; None allows all files."""
        ...
