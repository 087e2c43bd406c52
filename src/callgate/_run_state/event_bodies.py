"""The bodies of the events of a call, and the limits of the texts in them.

A body is encoded when it is read or written to disk. The values that it is made from are frozen, so encoding it later
gives the same bytes. Decides nothing, and knows no journal.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from callgate._clock import Clock
from callgate._json import canonical, exceeds, plain_bytes
from callgate._secret_redaction import Redactor, cut_middle, cut_text, cut_utf8
from callgate.calls import Note, RawCall, Scope, Suspended, ToolResult
from callgate.events import Event
from callgate.protocols import Execution

__all__ = [
    "MOST_CHARS",
    "MOST_NAME",
    "MOST_RAW",
    "AttemptFailed",
    "Raised",
    "Reason",
    "Received",
    "ReceivedCall",
    "ScopeFacts",
    "Started",
    "Verdict",
    "approval_id_of",
    "arguments_hash",
    "clean",
    "decode_reason",
    "decode_received",
    "decode_result",
    "has_made_id",
    "joined_texts",
    "question_of",
    "utc_text",
    "valid_text",
    "verdict_of",
    "with_id",
]

MOST_RAW = 65_536
"""The largest number of bytes that are recorded of the arguments as received."""
_MAX_HASHED = 4_194_304
"""Arguments above this size are recorded without their hash, because hashing them would block the event loop."""
MOST_CHARS = 4_096
"""The largest number of characters that are recorded of an id, a name, a reason or a model's reasoning."""
MOST_NAME = 256
"""The largest number of characters of a call's name, in its events and its result."""
_MOST_ERROR = 1_000
_MOST_TRACEBACK = 8_192
_WORDS = ("conversation", "turn", "tick", "iteration", "message_id", "phase", "principal", "actor", "workspace")
_words = attrgetter(*_WORDS)
_UNSAID: tuple[object, ...] = _words(Scope())
_NOTHING = Raw(b"null")


class _Json(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A body that is encoded with the fields it has."""

    def encode(self) -> bytes:
        return canonical(self)


class Received(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `call.received`."""

    id: str
    name: str
    arguments: str
    """The text as received, up to 64 KiB. Characters that UTF-8 cannot represent are escaped."""
    arguments_bytes: int = 0
    """The size of the arguments if they are larger than the recorded text. For text above 4 MiB, its length; for a
    mapping above that, 4 MiB.
    """
    arguments_sha256: str = ""
    """The hash of the arguments if they are larger than the recorded text, and not larger than 4 MiB."""
    origin: str = ""
    closed: str = "sealed"
    reasoning: str = ""
    idempotency_key: str = ""
    scope: dict[str, object] | None = None
    """The recorded fields of the scope, without the host's own context."""
    parent: str = ""
    """The uid of the call that made this one."""
    beside: str = ""
    """Keys that the model wrote beside the arguments, as JSON, up to 64 KiB."""


class ScopeFacts:
    """The recorded facts about a scope. Computed when they are first encoded, once for all calls that share the scope.

    References nothing of the host's, so that a stored event keeps no object of the host alive.
    """

    __slots__ = ("_facts", "_redactor", "_scope")

    def __init__(self, scope: Scope, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self._scope: Scope | None = scope if scope.extra is scope.streaming is None else replace(scope, extra=None, streaming=None)
        self._facts: dict[str, object] | None = None

    def fields(self) -> dict[str, object] | None:
        """Return the fields of the scope that differ from their defaults; None if there are none."""
        scope = self._scope
        if scope is not None:
            self._facts = _facts_of(scope, self._redactor)
            self._scope = None  # only now: another thread may be here too
        return self._facts


class ReceivedCall(Struct, frozen=True, gc=False):
    """A received call, which becomes the body `Received` when it is encoded."""

    raw: RawCall
    arguments: object
    """The arguments to record: those of `raw`, or their JSON text."""
    scope: ScopeFacts
    parent: str
    redactor: Redactor | None

    def encode(self) -> bytes:
        raw, redactor = self.raw, self.redactor
        text, size, digest = _as_text(self.arguments, redactor)
        body = Received(
            id=clean(raw.id, redactor),
            name=clean(raw.name, redactor, MOST_NAME),
            arguments=text,
            arguments_bytes=size,
            arguments_sha256=digest,
            origin=clean(raw.origin, redactor),
            closed=clean(raw.closed, redactor),
            reasoning=clean(raw.reasoning, redactor),
            idempotency_key=clean(raw.idempotency_key or "", redactor),
            scope=self.scope.fields(),
            parent=self.parent,
            beside=_as_text(raw.beside, redactor)[0] if raw.beside else "",
        )
        return canonical(body)


class Verdict(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `call.verdict`. The verdict `allow` of a call that starts is part of its `Started` instead."""

    verdict: str = ""
    """`allow`, `deny`, `ask`, or `modify`, after which the call is judged again with other arguments."""
    tool: str = ""
    server: str = ""
    """The tool server that has the tool; empty for other tools."""
    rule: str = ""
    reason: str = ""
    identity: str = ""
    arguments: Raw = _NOTHING
    """The arguments that the verdict is about, with their keys in the original order. For `allow`, the final arguments,
    as the tool gets them; for `modify`, the new ones.
    """
    hook: str = ""
    """The hook that refused the call or changed its arguments; empty if a policy did."""
    notes: tuple[Note, ...] = ()
    approval: str = ""
    """The question whose answer the call uses up: a human allowed the call, changed its arguments, or denied it. Empty
    if there is none.
    """
    judgments: tuple[object, ...] = ()
    """The judgments about the call, each a `Judgment`; empty if no judge was asked."""
    key: str = ""
    """The key that identifies the call in its run, if a human has allowed or denied it, or has changed its arguments and it has effects."""
    asked_hash: str = ""
    """The hash of the arguments as submitted, if `key` is given."""


class Started(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `call.started`."""

    tool: str
    effect: str
    key: str
    runner: str
    timeout_s: float
    server: str = ""
    """The tool server that has the tool; empty for other tools."""
    arguments_hash: str = ""
    """The hash of the final arguments, if the call has effects."""
    asked_hash: str = ""
    """The hash of the arguments as submitted, if the call has a key that identifies it."""
    tick: str = ""
    """The tick in which this call counts as dangerous; empty if dangerous calls are not counted."""
    claims: bool = False
    """Whether `call.claimed` follows before the tool's code is entered."""
    writer: str = ""
    """The engine that starts the call, as its journal names it; empty if no other process could tell whether that
    engine has ended.
    """
    effect_key: str = ""
    """The key of the call's effect, which the tool gets as its idempotency key; empty if the tool declares none."""
    verdict: str = ""
    """`allow` in the first start after the gate allowed the call. The fields below are those of `Verdict`."""
    rule: str = ""
    identity: str = ""
    arguments: Raw = _NOTHING
    notes: tuple[Note, ...] = ()
    approval: str = ""
    judgments: tuple[object, ...] = ()

    @property
    def tool_key(self) -> str:
        """The idempotency key that the tool gets."""
        return self.effect_key or self.key

    def encode(self) -> bytes:
        return canonical(replace(self, timeout_s=round(self.timeout_s, 3)))


class AttemptFailed(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `call.attempt_failed`."""

    status: str
    error: str = ""
    wait_s: float = 0.0

    @classmethod
    def of(cls, execution: Execution, wait_s: float, redactor: Redactor | None) -> AttemptFailed:
        return cls(status=execution.status, error=cut_text(execution.error, _MOST_ERROR, redactor), wait_s=round(wait_s, 3))


class Raised(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `call.raised`."""

    exception: str
    error: str = ""
    traceback: str = ""

    @classmethod
    def of(cls, execution: Execution, redactor: Redactor | None) -> Raised:
        error = cut_text(execution.error, _MOST_ERROR, redactor)
        return cls(exception=execution.error_type, error=error, traceback=cut_middle(execution.traceback, _MOST_TRACEBACK, redactor))


class Reason(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of all events that record why something ended or did not happen."""

    reason: str
    status: str = ""
    details: Mapping[str, object] | None = None


_VERDICTS = frozenset({"call.verdict", "call.started"})
_decode_verdict = msgspec.json.Decoder(Verdict).decode
decode_reason = msgspec.json.Decoder(Reason).decode
decode_received = msgspec.json.Decoder(Received).decode
decode_result = msgspec.json.Decoder(ToolResult).decode


def verdict_of(event: Event) -> Verdict | None:
    """Return the verdict that an event records, alone or together with a start; None if it records none."""
    verdict = _decode_verdict(event.body) if event.kind in _VERDICTS else None
    return verdict if verdict is not None and (verdict.verdict or event.kind == "call.verdict") else None


def approval_id_of(event: Event) -> str:
    """Return the id of the question for which an event suspended its call: that of an earlier call if this one was handed in again."""
    approval_id = (decode_reason(event.body).details or {}).get("approval")
    return approval_id if isinstance(approval_id, str) and approval_id else event.call


def question_of(event: Event) -> Suspended:
    """Return the question for which an event suspended its call."""
    reason = decode_reason(event.body)
    expires_at = (reason.details or {}).get("expires_at")
    return Suspended(approval_id_of(event), expires_at if isinstance(expires_at, int) else 0, clean(reason.reason), event.call)


def joined_texts(texts: Sequence[str]) -> bytes:
    """Return the texts as bytes to hash, joined by NUL. If one of them contains a NUL, the form is another one, so that the texts `a\\0b`
    and `c` are not taken for `a` and `b\\0c`: it has more NULs than any joined form of as many texts.
    """
    joined = "\0".join(texts)
    if joined.count("\0") >= len(texts):
        joined = "\0" * len(texts) + json.dumps(texts)
    return joined.encode("utf-8", "surrogatepass")


def arguments_hash(encoded: bytes) -> str:
    return hashlib.sha256(encoded).hexdigest()[:32]


def _facts_of(scope: Scope, redactor: Redactor | None) -> dict[str, object] | None:
    said = {word: value for word, value, unsaid in zip(_WORDS, _words(scope), _UNSAID, strict=True) if value != unsaid}
    if scope.deliberate and scope.allowed_tools is not None:
        said |= {"deliberate": True, "allowed_tools": sorted(scope.allowed_tools)}
    return {word: clean(value, redactor) if isinstance(value, str) else value for word, value in said.items()} or None


def _as_text(arguments: object, redactor: Redactor | None) -> tuple[str, int, str]:
    """Return the text to record of the arguments as received, and their size and hash if the text is not all of them.

    Reads no more of the arguments than the limits require.
    """
    if isinstance(arguments, Mapping):
        return _mapping_as_text(arguments, redactor)
    whole = arguments if isinstance(arguments, (bytes, str)) else str(arguments)
    if len(whole) > _MAX_HASHED:
        return cut_utf8(_as_utf8(whole[: 4 * MOST_RAW]), MOST_RAW, redactor), len(whole), ""
    raw = _as_utf8(whole)
    if len(raw) <= MOST_RAW:
        return raw.decode("utf-8", "backslashreplace"), 0, ""
    return cut_utf8(raw, MOST_RAW, redactor), len(raw), hashlib.sha256(raw).hexdigest()


def _mapping_as_text(arguments: Mapping[str, object], redactor: Redactor | None) -> tuple[str, int, str]:
    try:
        if exceeds(arguments, _MAX_HASHED):
            return "<too large>", _MAX_HASHED, ""
        raw = plain_bytes(arguments)
    except Exception:
        return "<no JSON>", 0, ""
    if len(raw) <= MOST_RAW:
        return raw.decode(), 0, ""
    return cut_utf8(raw, MOST_RAW, redactor), len(raw), hashlib.sha256(raw).hexdigest()


def _as_utf8(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")


def utc_text(at_ns: int) -> str:
    """Return a time as text, to the second."""
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def valid_text(text: object) -> str:
    """Return the text with characters escaped that UTF-8 cannot represent."""
    return str(text).encode("utf-8", "backslashreplace").decode()


_MADE_ID = re.compile(r"call_[0-9a-f]{16}")


def with_id(raw: RawCall, clock: Clock) -> RawCall:
    """Return the call with an id, so that its result can name the call. If the model gave none, the engine makes one."""
    return raw if raw.id else replace(raw, id=f"call_{clock.new_id()}")


def has_made_id(call_id: str) -> bool:
    """Return whether the engine probably made the call's id, so that the call has another one when it is submitted again."""
    return _MADE_ID.fullmatch(call_id) is not None


def clean(text: object, redactor: Redactor | None = None, chars: int = MOST_CHARS) -> str:
    """Return the text in valid UTF-8, with at most `chars` characters. It is redacted before it is cut."""
    if type(text) is str and redactor is None and len(text) <= chars and text.isascii():
        return text
    return cut_text(str(text), chars, redactor).encode("utf-8", "backslashreplace").decode()
