"""The protocol of runners, which run one attempt of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from callgate._abort_signals import AbortSignal
from callgate.content_parts import Part
from callgate.stage_types import ApprovedCall
from callgate.tools.effect_evidence import Evidence
from callgate.tools.tool_context import ToolContext
from callgate.tools.tool_declaration import Tool

__all__ = ["CancelledUnstarted", "Claim", "DistantRunner", "Execution", "InstantRunner", "RunRequest", "Runner", "Start"]


class Claim(Protocol):
    """Records that a worker is about to enter a tool's code."""

    def __call__(self, worker: str = "") -> Awaitable[None]: ...


class RunRequest(Struct, frozen=True, kw_only=True):
    """One attempt of a call."""

    approved: ApprovedCall
    context: ToolContext
    attempt: int
    timeout_s: float
    """Seconds until the attempt must be over."""
    grace_s: float
    """Seconds between asking the tool to stop and ending it. They are part of the one second in which an attempt must
    end.
    """
    kill: AbortSignal
    """Fires when the call must end now."""
    claim: Claim | None = None
    """If set, a runner that `claims` awaits it once, right before the tool's code can start, with the name of the process that will run it,
    if it has one. If it raises, the runner raises the same and does not start the code."""

    @property
    def not_done(self) -> tuple[type[BaseException], ...]:
        """The exceptions with which the tool declares that nothing happened."""
        return self.approved.call.tool.tool.not_done


class Execution(Struct, frozen=True, kw_only=True):
    """The outcome of one attempt, as data."""

    status: Literal["returned", "raised", "timed_out", "killed", "crashed", "not_started"]
    """`crashed`: the tool's process is gone. `not_started`: the tool's code certainly did not start."""
    value: object = None
    """The tool's return value; for `raised`, the exception if `error` does not have its text yet."""
    content: tuple[Part, ...] = ()
    """The parts that the model is shown instead of the text of `value`: images, files and texts that the tool returned."""
    read: bool = False
    """Whether `value` is plain JSON data that nothing else refers to. If not, the engine reads it within the attempt's
    time.
    """
    is_only_data: bool = False
    """Whether `value` is data whatever it looks like, such as the result of a framework's tool, from which the framework makes the content
    itself. No parts are read in it.
    """
    failure: str | None = None
    """For `returned`: what the tool says has failed, if its result says so by other means than its value, such as `isError` of MCP."""
    code: str = ""
    """The exact reason of a failure; if empty, that of `status`."""
    error_type: str = ""
    error: str = ""
    """The exception's text, or why the attempt ended; for the model, never a stack trace."""
    traceback: str = ""
    """For `raised`: the exception's type and traceback. For the tool's author, never for the model."""
    retryable: bool = False
    """Whether the failure is temporary."""
    not_started: bool = False
    """Whether the tool proved that nothing can have happened."""
    evidence: Evidence = ""
    """What the exception proves about the tool's effect."""
    retry_after_s: float | None = None
    abandoned: bool = False
    """Whether the tool's code still runs and cannot be stopped."""
    partial: str = ""
    """The end of the output of a tool without a result: at most 72 KiB, of which the engine shows 64."""
    details: Mapping[str, object] | None = None
    """Details of the end: exit code, signal, limit."""
    tasks_left: int = 0
    """The number of asyncio tasks that the tool left running."""
    changes: tuple[str, ...] = ()
    """Changes that the runner made to the value, one sentence each."""
    server_fields: dict[str, object] | None = None
    """See `Metadata.server_fields`."""


class CancelledUnstarted(asyncio.CancelledError):
    """The caller of an attempt was cancelled, and the tool knows that nothing has happened: its call was not sent."""


class Runner(Protocol):
    """Runs a tool's code. Knows nothing of policy, cache or journal.

    A runner whose attempts may wait outside this process after they were recorded may have a true attribute `claims`; see
    `RunRequest.claim`.
    """

    async def run(self, request: RunRequest) -> Execution:
        """Run one attempt and always return, at most a second after the deadline or the kill.

        Cancelling this coroutine kills the attempt.
        """
        ...

    async def close(self) -> None:
        """End all attempts, in bounded time. Idempotent."""
        ...


Start = Callable[[RunRequest], Execution | Awaitable[Execution]]
"""Runs one attempt: at once, or when it is awaited."""


@runtime_checkable
class InstantRunner(Runner, Protocol):
    """A runner that can return without being awaited."""

    def begin(self, request: RunRequest) -> Execution | Awaitable[Execution]:
        """Return the execution at once if the tool does not wait, else an awaitable."""
        ...


@runtime_checkable
class DistantRunner(Runner, Protocol):
    """A runner whose tools run on another machine: it refuses tools that cannot be found there, and reports late answers."""

    on_late: Callable[[str, Execution], None] | None
    """Called with the uid of an ended call and its tool's late answer. Set by the engine."""
    late: int
    """The number of answers that arrived after their call had ended."""
    abandoned: int
    """The number of calls whose tool may still run and cannot be stopped."""

    def check(self, tool: Tool) -> None:
        """Check, when a tool is registered, that the other machine can find it.

        Raises:
            UsageError: The other machine cannot find the tool.
        """
        ...
