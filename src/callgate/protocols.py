"""What adapters implement, and the values that cross those borders.

A policy decides, a runner runs, a journal keeps, a blob store holds bytes, a cache store holds results. Every implementation of one
protocol passes the same contract suite. Knows no implementation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from callgate._redact import Redactor
from callgate._signals import AbortSignal
from callgate.calls import Scope
from callgate.events import Bus, Draft, Event
from callgate.queries import EventQuery
from callgate.route import ApprovedCall, ValidatedCall
from callgate.tools import ToolRegistry
from callgate.tools.base import Tool
from callgate.tools.context import ToolContext

__all__ = [
    "Allow",
    "Ask",
    "BlobStore",
    "CacheStore",
    "Deny",
    "DistantRunner",
    "Execution",
    "Follower",
    "HoldsBlobs",
    "InstantPolicy",
    "Journal",
    "JournalStatus",
    "Kept",
    "Letter",
    "Modify",
    "OnDisk",
    "Policy",
    "RestartHandler",
    "RunRequest",
    "RunWatcher",
    "Runner",
    "Verdict",
    "WriteLog",
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


Verdict = Allow | Modify | Deny | Ask


@runtime_checkable
class Policy(Protocol):
    """Decides whether a validated call may run. Its error and its silence are a deny."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        """Judge these very arguments; must not change them."""
        ...


@runtime_checkable
class InstantPolicy(Policy, Protocol):
    """A policy that never waits: it is asked without a clock over it."""

    never_waits: bool

    def judge(self, call: ValidatedCall) -> Verdict:
        """What `decide` gives."""
        ...


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
    claim: Callable[[], Awaitable[None]] | None = None
    """Where it is set, a runner that `claims` awaits it once, right before the tool's code can be entered; what it raises is to be passed
    on, and the code not entered."""


class Execution(Struct, frozen=True, kw_only=True):
    """What became of one attempt. Data, whatever the tool did."""

    status: Literal["returned", "raised", "timed_out", "killed", "crashed", "not_started"]
    """`crashed`: the process that ran it is gone. `not_started`: the tool's code was certainly not entered."""
    value: object = None
    """What the tool returned."""
    error_type: str = ""
    error: str = ""
    """What was raised, or why it ended; text for the model, never a stack trace."""
    retryable: bool = False
    """Whether the failure is of a kind that passes."""
    not_started: bool = False
    """The tool itself proved that nothing can have happened yet."""
    retry_after_s: float | None = None
    abandoned: bool = False
    """The tool's code still runs and cannot be stopped."""
    partial: str = ""
    """What it had written before it ended without a result; at most 64 KiB, the tail."""
    details: Mapping[str, object] | None = None
    """Facts about the end: exit code, signal, limit."""
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


class JournalStatus(Struct, frozen=True, kw_only=True):
    """How a journal does, for an operator."""

    store: str
    where: str
    strength: str
    promise: str
    """What `strength` means, in words; begins with WEAKER where more could be had."""
    written: int
    """The position up to which everything is kept."""
    waiting: int = 0
    """Events that are not written yet."""
    failure: str = ""
    """Why nothing more is recorded; empty while all is well."""


class Letter(Struct, frozen=True, kw_only=True):
    """A row of a journal's inbox: what another process wants of a run."""

    id: int
    run: str
    kind: str
    """`approve`, `deny`, `stop` or `kill`; whatever else stands there is refused."""
    target: str
    """The approval, or the run."""
    actor: str
    reason: str
    at_ns: int
    """When it was put there, in UTC nanoseconds by the writer's clock."""
    cause: int = 0
    """The position of the event that it is about: the question, or the run's latest; 0: there is none."""


class RunWatcher(Protocol):
    """Told, on its own event loop, what becomes of the runs that a journal is held for."""

    def lost(self, run: str, why: str) -> None:
        """Somebody else has the run now: nothing of it is recorded here any more, and nothing may start in it."""
        ...

    def came(self, letter: Letter) -> None:
        """Another process wants something of a run that is held. To be recorded once, by an event with the letter's id as `inbox`."""
        ...


class Journal(Protocol):
    """Keeps events in order. One writer for each run."""

    strength: str
    """What survives: `memory` nothing, `process` the end of the process, `full` power loss."""
    remote: bool
    """Whether reading waits for a server."""

    def append(self, draft: Draft) -> int:
        """Take the event and return its position. Never waits.

        Where others write to the same journal the event may come to stand further on: a position that was returned here is good as a cause,
        for `durable` and for `place`, and for nothing else.
        """
        ...

    async def durable(self, position: int) -> None:
        """Return when everything up to `position` survives what `strength` promises.

        Raises:
            LeaseLost: The run is somebody else's now; nothing of this event is kept.
        """
        ...

    def place(self, position: int) -> int:
        """Where an event stands that is durable, by the position that `append` returned; a position that was read is given back."""
        ...

    async def hold(self, run: str) -> bool:
        """Have a run to oneself until it is let go or the journal is closed; tells whether it was not held before.

        The first event that only a run's holder may write does the same, without waiting.

        Raises:
            RunHeld: Somebody else has it, and may be alive.
        """
        ...

    def let_go(self, run: str) -> None:
        """Give a run back once all that was appended to it is written. Never waits."""
        ...

    def watch(self, watcher: RunWatcher) -> None:
        """Tell somebody on the running event loop what becomes of runs that are held."""
        ...

    def read(
        self, *, run: str | None = None, call: str | None = None, after: int = 0, limit: int | None = None, newest_first: bool = False
    ) -> Iterable[Event]:
        """Events after position `after`, in order, or backwards from the last."""
        ...

    def find(self, query: EventQuery) -> Iterable[Event]:
        """The events that the query asks for, those that are not durable yet included."""
        ...

    def status(self) -> JournalStatus: ...

    async def close(self) -> None:
        """Make everything durable and let go. Idempotent."""
        ...


class BlobStore(Protocol):
    """Holds bytes by their SHA-256."""

    def put(self, data: bytes) -> str:
        """Keep `data` and return its hash as 64 lower-case hex digits. The same bytes are kept once."""
        ...

    def get(self, digest: str) -> bytes | None:
        """The bytes with this hash, checked against it, or None."""
        ...


@runtime_checkable
class HoldsBlobs(Protocol):
    """A journal that keeps large results beside its events."""

    @property
    def blobs(self) -> BlobStore:
        """What is put there is kept before any event that is appended after it."""
        ...


class CacheStore(Protocol):
    """Holds checked results as bytes, for as long as the process (memory) or the file (table)."""

    def get(self, key: str, now_ns: int) -> bytes | None:
        """The value, unless it has expired."""
        ...

    def put(self, key: str, value: bytes, *, expires_ns: int | None, reads: frozenset[str]) -> None:
        """Keep a value. `reads` are the resource keys it was made from."""
        ...

    def drop_written(self, writes: frozenset[str]) -> int:
        """Forget every value that was made from what is now being written; returns how many."""
        ...

    def close(self) -> None: ...


class Kept(Struct, frozen=True, kw_only=True):
    """What was kept of a call's writes."""

    commit: str
    """Where."""
    paths: tuple[str, ...]
    """What changed, the first of it."""
    count: int
    """How many paths changed."""
    unkept: tuple[str, ...] = ()
    """What changed and cannot be put back, the first of it."""
    not_looked_at: int = 0
    """Paths that may have changed and were left out, because the user's own files say so."""


@runtime_checkable
class OnDisk(Protocol):
    """A journal, store or cache that keeps files, which may be in a workspace."""

    @property
    def files(self) -> tuple[str, ...]:
        """All files and folders that it writes, by their absolute paths."""
        ...


class WriteLog(Protocol):
    """Keeps what calls change in a workspace, so that it can be undone. Called in threads; what it raises fails no call."""

    def leave_out(self, files: Iterable[str]) -> None:
        """These are an engine's own: whatever happens to them is no call's work."""
        ...

    def begin(self, scope: Scope, uid: str, tool: str, keys: tuple[str, ...] | None) -> object:
        """Have what the call may change kept when this returns: the call starts then.

        Args:
            keys: Paths in the workspace; None: anything in it.
        """
        ...

    def finish(self, opened: object) -> Kept | None:
        """Keep what has changed since; None where nothing has. Called once for each `begin`, whatever became of the call."""
        ...


class Follower(Protocol):
    """Follows an engine's record, beside the route: what it makes of it, and whether it can, is nothing to any call."""

    def follow(self, journal: Journal, bus: Bus, tools: ToolRegistry, redactor: Redactor | None) -> None:
        """Begin. The journal has what happened, the bus says that something did, the tools say what their calls write.

        Args:
            redactor: Takes secrets out of whatever is kept that is not from the journal.
        """
        ...

    async def close(self) -> None:
        """End in bounded time, before the journal is closed. Idempotent."""
        ...


RestartHandler = Callable[[object], Awaitable[bool]]
"""Given a result's data whose `type` begins with `context_restart_`: enrich the context and return True, or leave it and return False.
Its error, and its silence for longer than `Limits.hook_timeout_s`, count as False: the result goes to the model."""
