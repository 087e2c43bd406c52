"""Record a run of an agent: its beginning, each phase with its message and its calls, and its end.

A phase is one request to the model with the calls of its answer. `load_run` can restore the conversation from these
events and the events of the calls. A message is recorded before any of its calls with an effect starts. It is on disk
no later than the intent of that call, which is recorded after it. Bodies are encoded when they are read or written to
disk; large ones are stored by their hash. Decides nothing. A run that cannot be recorded is ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._json import canonical, decode
from callgate._run_state.event_bodies import clean, valid_text
from callgate._secret_redaction import Redactor
from callgate.agent.context_restarts import AddedContext
from callgate.agent.loop_settings import Settings
from callgate.agent.prompt_hash import PromptHash, as_json
from callgate.agent.run_result import Exposed, RunResult
from callgate.calls import Part, Scope
from callgate.engine import Engine
from callgate.messages import AssistantMessage, Message, UserMessage
from callgate.models.model_events import Usage
from callgate.models.wire.request import ToolSpec
from callgate.protocols import BlobStore
from callgate.stream import StreamResult

__all__ = [
    "BlobReader",
    "Phase",
    "PhaseAnsweredBody",
    "PhaseBeganBody",
    "PhaseExecutedBody",
    "RunBeganBody",
    "RunCompactedBody",
    "RunEndedBody",
    "RunMessageBody",
    "RunRecorder",
    "StoredBody",
    "read_body",
]

Phase = Literal["deliberate", "reflect"]


class BlobReader(Protocol):
    """Reads bodies that are too large for their events."""

    def get(self, digest: str) -> bytes | None: ...


class StoredBody(Struct, frozen=True, kw_only=True):
    """Replaces a body that is too large for its event."""

    blob: str
    """SHA-256 of the body in the blob store."""
    bytes: int


class RunBeganBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of `run.began` and of `run.resumed`."""

    task: UserMessage | None = None
    model: str = ""
    """The model, as `provider:model`."""
    tools: Mapping[str, str] = {}
    """The identity of each tool that could be called, by name."""
    settings: Settings = Settings()
    scope: Scope = Scope()
    """The scope without the host's own context."""
    phase: Phase = "deliberate"
    exposed: Exposed | None = None
    exits: tuple[ToolSpec, ...] = ()
    """Tools whose calls are signals and never run."""
    after: int = 0
    """The position of the event at which the conversation before this run is complete. 0: that conversation is not
    on record.
    """
    history: tuple[Message, ...] = ()
    """The conversation before this run, if it is not on record."""


class PhaseBeganBody(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `phase.began`."""

    phase: Phase
    iteration: int = 0
    messages: int = 0
    """The number of messages that the model was shown, without the system text."""
    shown: str = ""
    """The `PromptHash.digest` of the messages, redacted; empty in records from versions without it."""
    system: str | None = None
    """The system text; None if it did not change since the previous pass, or if there is none yet."""
    added: str = ""
    """The digest of the messages that followed the conversation and are not kept in it: context that tools added for this turn."""


class LazyPhaseBegan(Struct, frozen=True, gc=False):
    """A `PhaseBeganBody` that is made when it is encoded."""

    encoder: BodyEncoder
    phase: Phase
    iteration: int
    shown: PromptHash
    system: str | None
    added: PromptHash | None

    def encode(self) -> bytes:
        clean = self.encoder.redactor.redact if self.encoder.redactor is not None else None
        body = PhaseBeganBody(
            phase=self.phase,
            iteration=self.iteration,
            messages=self.shown.count,
            shown=self.shown.digest(clean),
            system=self.system,
            added=self.added.digest(clean) if self.added is not None else "",
        )
        return self.encoder.encoded(body)


class PhaseAnsweredBody(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `phase.answered`."""

    status: str
    """How the pass ended; `waiting` if calls that waited for a human are handed in again."""
    iteration: int = 0
    message: AssistantMessage | None = None
    """The message as the conversation keeps it; None if nothing of it is kept."""
    closed: tuple[str, ...] = ()
    """For each call, how its arguments were proved complete."""
    executes: bool = False
    """Whether the calls are handed to the engine."""
    finish: str = ""
    usage: Usage | None = None
    reason: str = ""
    lost: tuple[int, ...] = ()
    """The indexes of calls whose recorded arguments differ from the model's, because a secret was removed."""


class PhaseExecutedBody(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `phase.executed`."""

    calls: tuple[str, ...]
    """The uid of each of the message's calls, in order; empty for exit calls, which are never run."""
    hints: Mapping[str, str] = {}
    """The text that the loop appended to a call's result, by the call's index."""
    added: AddedContext | None = None
    """The context that the calls have added instead of returning results."""


class RunMessageBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of `run.message`."""

    text: str = ""
    content: tuple[Part, ...] = ()
    """Used instead of `text` for context that a tool added and that the conversation keeps."""


class RunCompactedBody(Struct, frozen=True, kw_only=True):
    """The body of `run.compacted`."""

    messages: tuple[Message, ...]


class RunEndedBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of `run.ended`."""

    status: str
    turn_status: str
    reason: str = ""
    text: str = ""
    """The beginning of the run's last text."""


class BodyEncoder(Struct, frozen=True):
    """Encodes the bodies of one engine's events: redacted, and stored by hash if they are large."""

    redactor: Redactor | None
    blobs: BlobStore
    most_bytes: int
    """The maximum size of a body in its event; a larger one is stored by its hash."""

    def encoded(self, body: Struct) -> bytes:
        raw = as_json(body)
        if self.redactor is not None:
            raw = self._redact(body, raw)
        return raw if len(raw) <= self.most_bytes else canonical(StoredBody(blob=self.blobs.put(raw), bytes=len(raw)))

    def _redact(self, body: Struct, raw: bytes) -> bytes:
        assert self.redactor is not None
        clean_body = self.redactor.redact(raw)
        if clean_body == raw or not isinstance(body, PhaseAnsweredBody) or body.message is None:
            return clean_body
        kept = msgspec.json.decode(clean_body, type=PhaseAnsweredBody)
        calls = kept.message.calls if kept.message is not None else ()
        lost = tuple(place for place, call in enumerate(body.message.calls) if call not in calls[place : place + 1])
        return canonical(replace(kept, lost=lost))


class LazyBody(Struct, frozen=True, gc=False):
    """A body that is encoded when it is read or written to disk."""

    encoder: BodyEncoder
    value: Struct

    def encode(self) -> bytes:
        return self.encoder.encoded(self.value)


class RunRecorder:
    """Writes the events of one run.

    Args:
        engine: The engine whose journal the events are written to.
        run: The run's id.
        phase: The kind of the run's phases.
    """

    __slots__ = ("_encoder", "_run", "_system", "_write", "last", "phase")

    def __init__(self, engine: Engine, run: str, phase: Phase = "deliberate") -> None:
        self._encoder = BodyEncoder(engine.redactor, engine.blobs, engine.limits.result_inline_bytes)
        self._write = engine.runs.write
        self._run = run
        self.phase: Phase = phase
        self._system = ""
        """The system text that was recorded last."""
        self.last = 0
        """The position of the latest event."""

    def write_run_began(self, body: RunBeganBody) -> None:
        self._put("run.began", body, (body.after,) if body.after else ())

    def write_run_resumed(self, body: RunBeganBody, after: int) -> None:
        self._put("run.resumed", body, (after,) if after else ())

    def write_pass_began(self, iteration: int, shown: PromptHash, system: str = "", added: Sequence[Message] = ()) -> int:
        """Record that a pass begins.

        Args:
            iteration: The iteration of the pass.
            shown: The hash of the conversation that the model is shown.
            system: The system text before it.
            added: The messages after it.
        """
        said = None if system == self._system else system
        self._system = system
        body = LazyPhaseBegan(self._encoder, self.phase, iteration, shown, said, PromptHash(None, added) if added else None)
        self.last = position = self._write("phase.began", self._run, body, (self.last,) if self.last else ())
        return position

    def write_answer(self, result: StreamResult, message: AssistantMessage | None, iteration: int, *, executes: bool) -> int:
        """Record the model's answer, with its message as the conversation keeps it. Return the position of the event."""
        body = PhaseAnsweredBody(
            status=result.status,
            iteration=iteration,
            message=message,
            closed=result.closed if executes else (),
            executes=executes,
            finish=result.finish or "",
            usage=result.usage,
            reason=result.reason,
        )
        self.last = position = self._write("phase.answered", self._run, LazyBody(self._encoder, body), (self.last,) if self.last else ())
        return position

    def write_resumed_calls(self, message: AssistantMessage, closed: Sequence[str], iteration: int) -> int:
        """Record that calls which waited for a human are handed in again. Return the position of the event."""
        body = PhaseAnsweredBody(status="waiting", iteration=iteration, message=message, closed=tuple(closed), executes=True)
        return self._put("phase.answered", body, self._causes())

    def write_phase_executed(self, body: PhaseExecutedBody, ends: Sequence[int]) -> None:
        """Record that all calls of a message have ended, at these positions."""
        parents = tuple(ends) if len(ends) == 1 and ends[0] else tuple(sorted({end for end in ends if end})) or self._causes()
        self.last = self._write("phase.executed", self._run, LazyBody(self._encoder, body), parents)

    def write_message(self, text: str) -> None:
        """Record a message of the user that the loop has added."""
        self._put("run.message", RunMessageBody(text=valid_text(text)), self._causes())

    def write_kept_context(self, parts: tuple[Part, ...]) -> None:
        """Record context of a tool that stays in the conversation."""
        self._put("run.message", RunMessageBody(content=parts), self._causes())

    def write_compaction(self, messages: Sequence[Message]) -> None:
        self._put("run.compacted", RunCompactedBody(messages=tuple(messages)), self._causes())

    def write_run_ended(self, result: RunResult) -> None:
        reason, text = (clean(said, self._encoder.redactor) for said in (result.reason, result.text))
        body = RunEndedBody(status=result.status, turn_status=result.turn_status, reason=reason, text=text)
        self._put("run.ended", body, self._causes())

    def _put(self, kind: str, body: Struct, parents: tuple[int, ...]) -> int:
        self.last = position = self._write(kind, self._run, LazyBody(self._encoder, body), parents)
        return position

    def _causes(self) -> tuple[int, ...]:
        return (self.last,) if self.last else ()


def read_body(event_body: bytes, blobs: BlobReader) -> bytes:
    """Return the bytes of a body, from the event or from the blob store; empty if the blob no longer exists."""
    if not event_body.startswith(b'{"blob":'):
        return event_body
    return blobs.get(str(decode(event_body)["blob"])) or b""
