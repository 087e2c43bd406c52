"""Events, the table of their kinds, and the bus.

A writer appends a `Draft`; the journal assigns its numbers (`seq`, `position`) and its hash, which makes it an `Event`. Bodies are JSON
bytes, hashed and read back as they were written; in them, a call's arguments keep the order of their keys. Knows nothing of stores, calls
or tools.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from msgspec import Struct

from callgate._abort_signals import FAILURES

__all__ = ["KINDS", "TERMINAL", "Body", "Bus", "Draft", "Event", "Progress", "encoded", "is_leased"]

KINDS: Final[dict[str, str]] = {
    "call.received": "the call as the model wrote it, cut to the record's limit",
    "call.verdict": "what gate and judges decided, by which rule or hook, on which arguments; `modify` where it goes on with others;"
    " an allow where the call did not start",
    "call.suspended": "a human has to decide; nothing ran",
    "call.started": "an attempt is about to start: the intent, and the claim as well unless its body says `claims`; the first one with the"
    " allow that let it start",
    "call.claimed": "a worker process is ready and gets the attempt now",
    "call.attempt_failed": "an attempt failed, and another one follows",
    "call.raised": "the tool's code raised in an attempt: the exception's type, text and traceback, for the tool's author",
    "call.late": "an answer arrived after the call had ended, and was discarded",
    "call.completed": "the call's one result",
    "call.restarted": "the call's result was added to the context instead of the history",
    "call.aborted": "the call ended its message, and has no result",
    "call.replayed": "the same call came in again and got the stored result",
    "effect.claimed": "a call took the key of its effect; the run is that of the key, and this call decides what later ones get",
    "hook.failed": "an observer failed on this call, with no other effect",
    "emission.sealed": "all calls of one message are known, in this order",
    "emission.limited": "calls of one message above the limit were refused and did not run",
    "emission.discarded": "the message failed or was killed; early results were dropped",
    "files.kept": "the change of a call in its workspace is kept, and can be undone",
    "files.not_kept": "the change of a call could not be kept; the call continued, and cannot be undone",
    "files.undone": "changes of calls to files were undone",
    "files.redone": "undone changes were made again",
    "fact.settled": "the outcome of an unknown call is known now",
    "call.resumed": "an open call continues under its own id",
    "approval.answered": "a human answered the question of a suspended call",
    "approval.closed": "the question is over: its call went on without an answer, its message was discarded, or an equal call was denied",
    "inbox.taken": "a request of another process (an answer, a stop, a kill) was read from the inbox and carried out",
    "inbox.refused": "a request of another process could not be carried out, and why",
    "run.began": "an agent started a run: the task, the model, its settings, the tools",
    "run.resumed": "a run that waited or was cut off continues",
    "run.message": "the loop added a message of its own for the model",
    "run.compacted": "the history was shortened; this is the new one",
    "run.ended": "the run has ended, or waits for a human: how and why",
    "phase.began": "a pass of the model begins, to deliberate or to reflect",
    "phase.answered": "the pass has ended; the model's whole message, whose calls are executed next",
    "phase.executed": "each call of the message has ended",
}
"""Every kind of event that callgate writes. Readers must accept kinds that they do not know."""

TERMINAL: Final = frozenset({"call.completed", "call.restarted", "call.aborted", "call.suspended"})
"""The kinds that end a call; each call has exactly one."""


_LEASED: Final = ("call.", "effect.", "run.", "phase.", "emission.", "approval.", "fact.", "inbox.")


def is_leased(kind: str) -> bool:
    """Whether only the holder of a run may write events of this kind. Any process may write the others."""
    return kind.startswith(_LEASED)


class Encodable(Protocol):
    """A frozen body that is encoded when its bytes are needed."""

    def encode(self) -> bytes: ...


Body = bytes | Encodable


def encoded(body: Body) -> bytes:
    return body if isinstance(body, bytes) else body.encode()


class Draft(Struct, frozen=True, kw_only=True, gc=False):
    """An event before the journal has assigned its numbers."""

    kind: str
    run: str
    body: Body
    """The body as redacted JSON, or a value that is encoded to it."""
    call: str = ""
    """The call's uid; empty for events of the run."""
    attempt: int = 0
    parents: tuple[int, ...] = ()
    """Positions of the events that caused this one; all are smaller than its own."""
    inbox: int = 0
    """The id of the inbox message that this event answers; 0 for none."""

    def sealed(self, *, position: int, seq: int, at_ns: int, mono: float, epoch: int = 0) -> Event:
        """Return the event with these numbers."""
        return Event(
            position=position,
            run=self.run,
            seq=seq,
            kind=self.kind,
            call=self.call,
            attempt=self.attempt,
            parents=self.parents,
            at_ns=at_ns,
            mono=mono,
            body=encoded(self.body),
            epoch=epoch,
        )


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """One recorded event."""

    position: int
    """Its number in the journal, from 1."""
    run: str
    seq: int
    """Its number in its run, from 1, without gaps."""
    kind: str
    call: str
    attempt: int
    parents: tuple[int, ...]
    at_ns: int
    """UTC wall time in nanoseconds."""
    mono: float
    """Monotonic seconds of the writing process."""
    body: bytes
    epoch: int = 0
    """The lease's epoch; it rises with each new holder of the run."""
    version: int = 1
    """The version of the body's fields."""
    previous: str = ""
    hash: str = ""
    """SHA-256 over `previous` and this event; empty if the journal does not compute hashes."""

    @property
    def leased(self) -> bool:
        """Whether only the holder of the run may write this event."""
        return is_leased(self.kind)


class Progress(Struct, frozen=True, kw_only=True):
    """A piece of a running call's output. Delivered live, never recorded."""

    call: str
    seq: int
    """From 1 per call, without gaps."""
    text: str
    stream: str = "stdout"
    call_id: str = ""
    """The model's id of the call."""


Listener = Callable[[str, object], None]


class Bus:
    """Delivers events to listeners, at once and in order. An exception of a listener affects only that delivery.

    Topics: each kind of `KINDS` with its `Event`, `tool.completed` with a `ToolResult`, `call.progress` with a `Progress`.
    """

    __slots__ = ("_listeners", "busy", "failures")

    def __init__(self) -> None:
        self._listeners: list[tuple[Listener, frozenset[str] | None]] = []
        self.busy = False
        """Whether there is a listener."""
        self.failures = 0
        """How many times a listener has raised."""

    def subscribe(self, listener: Listener, *topics: str) -> Callable[[], None]:
        """Call `listener(topic, item)` for these topics, or for all. Returns a function that ends the subscription."""
        entry = (listener, frozenset(topics) or None)
        self._listeners.append(entry)
        self.busy = True

        def end() -> None:
            with suppress(ValueError):
                self._listeners.remove(entry)
            self.busy = bool(self._listeners)

        return end

    def publish(self, topic: str, item: object) -> None:
        for listener, topics in tuple(self._listeners):
            if topics is None or topic in topics:
                try:
                    listener(topic, item)
                except FAILURES:
                    self.failures += 1
