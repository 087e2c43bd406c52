"""Write down what happens to a call, each event with what caused it.

Brackets the whole route. Bodies are canonical JSON, redacted before they reach the journal. Decides nothing; a journal that cannot be
written to stops the call before it runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from callgate._json import canonical
from callgate._redact import Redactor
from callgate.calls import Note, RawCall, Scope, ToolResult
from callgate.errors import RecordFailed
from callgate.events import Bus, Draft
from callgate.protocols import Execution, Journal
from callgate.route import ApprovedCall

__all__ = ["CallRecord", "Reason", "Received", "Started", "Verdict", "Writer", "arguments_hash", "conversation_run", "decode_result"]

_MAX_RAW = 65_536


class Received(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str
    arguments: str
    """The text as it came, up to 64 KiB; characters that UTF-8 cannot hold are escaped."""
    arguments_bytes: int = 0
    """The size of the whole, where it is larger than what is kept."""
    arguments_sha256: str = ""
    origin: str = ""
    closed: str = "sealed"
    reasoning: str = ""
    idempotency_key: str = ""
    conversation: str = ""
    turn: int = 0
    tick: str = ""
    iteration: int = 0
    principal: str = ""
    actor: str = ""
    workspace: str = ""
    parent: str = ""
    """The uid of the call that made this one."""


class Verdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    verdict: str
    tool: str
    rule: str = ""
    reason: str = ""
    identity: str = ""
    arguments: Raw = Raw(b"null")
    """The final arguments, as the tool gets them."""
    notes: tuple[Note, ...] = ()


class Started(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tool: str
    effect: str
    key: str
    runner: str
    timeout_s: float
    arguments_hash: str = ""
    """Of the final arguments; set where the call has effects."""
    asked_hash: str = ""
    """Of the arguments as they were handed in; set where the call has a key by which it is known again."""


class AttemptFailed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: str
    error: str = ""
    wait_s: float = 0.0


class Reason(Struct, frozen=True, kw_only=True, omit_defaults=True):
    reason: str
    status: str = ""
    details: Mapping[str, object] | None = None


class Writer:
    """One engine's pen: encodes, redacts, appends, and tells the bus."""

    __slots__ = ("bus", "journal", "redactor")

    def __init__(self, journal: Journal, bus: Bus, redactor: Redactor | None) -> None:
        self.journal = journal
        self.bus = bus
        self.redactor = redactor

    def write(self, kind: str, body: object, *, run: str, call: str = "", attempt: int = 0, parents: tuple[int, ...] = ()) -> int:
        """Append one event and return its position.

        Raises:
            RecordFailed: The journal did not take it.
        """
        encoded = body if type(body) is bytes else canonical(body)
        if self.redactor is not None:
            encoded = self.redactor.redact(encoded)
        draft = Draft(kind=kind, run=run, call=call, attempt=attempt, parents=parents, body=encoded)
        try:
            event = self.journal.append(draft)
        except Exception as error:
            raise RecordFailed(
                f"The record could not be written ({type(error).__name__}: {error}). Nothing is run until it can be; tell the operator."
            ) from error
        if self.bus.busy:
            self.bus.publish(kind, event)
        return event.position


class CallRecord:
    """The events of one call, each caused by the one before it."""

    __slots__ = ("_last", "_run", "_uid", "_writer", "asked_hash")

    def __init__(self, writer: Writer, run: str, uid: str, cause: int) -> None:
        self._writer = writer
        self._run = run
        self._uid = uid
        self._last = cause
        self.asked_hash = ""

    @property
    def last(self) -> int:
        """The position of this call's latest event: what nested calls are caused by."""
        return self._last

    def write(self, kind: str, body: object, *, attempt: int = 0) -> int:
        parents = (self._last,) if self._last else ()
        self._last = position = self._writer.write(kind, body, run=self._run, call=self._uid, attempt=attempt, parents=parents)
        return position

    def received(self, raw: RawCall, scope: Scope, parent: str) -> None:
        text, size, digest = _as_text(raw.arguments)
        self.write(
            "call.received",
            Received(
                id=_clean(raw.id),
                name=_clean(raw.name)[:256],
                arguments=text,
                arguments_bytes=size,
                arguments_sha256=digest,
                origin=raw.origin,
                closed=raw.closed,
                reasoning=_clean(raw.reasoning),
                idempotency_key=_clean(raw.idempotency_key or ""),
                conversation=scope.conversation,
                turn=scope.turn,
                tick=scope.tick,
                iteration=scope.iteration,
                principal=scope.principal,
                actor=scope.actor,
                workspace=scope.workspace,
                parent=parent,
            ),
        )

    def approved(self, approved: ApprovedCall) -> None:
        call = approved.call
        self.write(
            "call.verdict",
            Verdict(
                verdict="allow",
                tool=call.tool.name,
                rule=approved.rule,
                identity=call.tool.identity,
                arguments=Raw(approved.encoded),
                notes=call.notes,
            ),
        )

    def started(self, approved: ApprovedCall, attempt: int, timeout_s: float) -> int:
        tool = approved.call.tool
        return self.write(
            "call.started",
            Started(
                tool=tool.name,
                effect=tool.effect,
                key=approved.key,
                runner=tool.runner,
                timeout_s=round(timeout_s, 3),
                arguments_hash="" if tool.effect == "none" else arguments_hash(approved.encoded),
                asked_hash=self.asked_hash,
            ),
            attempt=attempt,
        )

    async def durable(self, position: int) -> None:
        try:
            await self._writer.journal.durable(position)
        except Exception as error:
            raise RecordFailed(
                f"The record could not be made durable ({type(error).__name__}). The call was not run; tell the operator."
            ) from error

    def attempt_failed(self, approved: ApprovedCall, attempt: int, execution: Execution, wait_s: float) -> None:
        self.write(
            "call.attempt_failed",
            AttemptFailed(status=execution.status, error=execution.error[:1000], wait_s=round(wait_s, 3)),
            attempt=attempt,
        )

    def completed(self, body: bytes) -> int:
        return self.write("call.completed", body)

    def remember(self, conversation: str, body: bytes) -> None:
        """Keep the call as the conversation's current one, in a run of the conversation's own."""
        self._writer.write("conversation.tool_call", body, run=conversation_run(conversation), call=self._uid, parents=(self._last,))


decode_result = msgspec.json.Decoder(ToolResult).decode


def conversation_run(conversation: str) -> str:
    """The run that holds what is remembered of a conversation as a whole."""
    return f"conversation:{conversation}"


def arguments_hash(encoded: bytes) -> str:
    return hashlib.sha256(encoded).hexdigest()[:32]


def _as_text(arguments: object) -> tuple[str, int, str]:
    """What to keep of the arguments as they came; the size and hash of the whole where that is more."""
    if isinstance(arguments, Mapping):
        try:
            raw = canonical(arguments)
        except Exception:
            return "<no JSON>", 0, ""
    else:
        raw = arguments if isinstance(arguments, bytes) else str(arguments).encode("utf-8", "backslashreplace")
    if len(raw) <= _MAX_RAW:
        return raw.decode("utf-8", "backslashreplace"), 0, ""
    return raw[:_MAX_RAW].decode("utf-8", "ignore"), len(raw), hashlib.sha256(raw).hexdigest()


def _clean(text: object) -> str:
    """Bounded, and valid UTF-8 whatever came."""
    return str(text)[:4096].encode("utf-8", "backslashreplace").decode()
