"""What runs a tool's code: one attempt, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate.route import ApprovedCall
from callgate.tools.base import Tool
from callgate.tools.context import ToolContext
from callgate.tools.effect_evidence import Evidence

__all__ = ["Claim", "DistantRunner", "Execution", "InstantRunner", "RunRequest", "Runner", "Start"]


class Claim(Protocol):
    """Records that a worker is about to enter a tool's code."""

    def __call__(self, worker: str = "") -> Awaitable[None]: ...


class RunRequest(Struct, frozen=True, kw_only=True):
    """One attempt, as a runner needs it."""

    approved: ApprovedCall
    context: ToolContext
    attempt: int
    timeout_s: float
    """Until the attempt must be over."""
    grace_s: float
    """Between telling the tool to stop and ending it; part of the second within which it must be gone."""
    kill: AbortSignal
    """Fires when the call must end now."""
    claim: Claim | None = None
    """Where it is set, a runner that `claims` awaits it once, right before the tool's code can be entered, with the name of the process
    that will run it, if it has one; what it raises is to be passed on, and the code not entered."""

    @property
    def not_done(self) -> tuple[type[BaseException], ...]:
        """The exceptions by which the tool says that nothing happened."""
        return self.approved.call.tool.tool.not_done


class Execution(Struct, frozen=True, kw_only=True):
    """What became of one attempt. Data, whatever the tool did."""

    status: Literal["returned", "raised", "timed_out", "killed", "crashed", "not_started"]
    """`crashed`: the process that ran it is gone. `not_started`: the tool's code was certainly not entered."""
    value: object = None
    """What the tool returned; of `raised`, its exception where `error` does not say yet what that says."""
    read: bool = False
    """Whether `value` is plain JSON data that nobody else holds: what has not been read yet is, within the attempt's time."""
    error_type: str = ""
    error: str = ""
    """What was raised, or why it ended; text for the model, never a stack trace."""
    retryable: bool = False
    """Whether the failure is of a kind that passes."""
    not_started: bool = False
    """The tool itself proved that nothing can have happened yet."""
    evidence: Evidence = ""
    """What the exception proves about the tool's effect."""
    retry_after_s: float | None = None
    abandoned: bool = False
    """The tool's code still runs and cannot be stopped."""
    partial: str = ""
    """What it had written before it ended without a result; at most 72 KiB, the tail, of which the engine shows 64."""
    details: Mapping[str, object] | None = None
    """Facts about the end: exit code, signal, limit."""
    tasks_left: int = 0
    """Tasks of an event loop that the tool had started and that still ran when it had ended."""
    changes: tuple[str, ...] = ()
    """What the runner did to the value to get it: a sentence each."""


class Runner(Protocol):
    """Runs a tool's code. Knows nothing of policy, cache or journal.

    One whose attempts may wait, after they were recorded, until something outside this process takes them on may have an attribute `claims`
    that is true: see `RunRequest.claim`.
    """

    async def run(self, request: RunRequest) -> Execution:
        """Run one attempt and always come back, at the latest a second after the deadline or the kill.

        Cancelling this coroutine is a kill.
        """
        ...

    async def close(self) -> None:
        """End everything that runs, in bounded time. Idempotent."""
        ...


Start = Callable[[RunRequest], Execution | Awaitable[Execution]]
"""Runs one attempt: at once, or once it is waited for."""


@runtime_checkable
class InstantRunner(Runner, Protocol):
    """A runner that can answer without being waited for."""

    def begin(self, request: RunRequest) -> Execution | Awaitable[Execution]:
        """What `run` gives, at once where the tool does not wait."""
        ...


@runtime_checkable
class DistantRunner(Runner, Protocol):
    """A runner whose tools run elsewhere: it refuses beforehand what could not be found there, and tells what came too late."""

    on_late: Callable[[str, Execution], None] | None
    """Takes the uid of a call that has ended and what its tool answered after that. The engine sets it."""
    late: int
    """How many answers came after their call had ended."""
    abandoned: int
    """Calls whose tool may still run, with nobody to stop it."""

    def check(self, tool: Tool) -> None:
        """Asked when a tool is registered.

        Raises:
            UsageError: The other side could not find it; with what to do about it.
        """
        ...
