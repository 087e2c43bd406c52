"""What the record says of a call: the bodies of its events, and the words in them.

A body is encoded when somebody reads it or when it goes to disk: what it is made of is frozen, so it is the same then as now. Decides
nothing, and knows no journal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from operator import attrgetter

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from callgate._clock import Clock
from callgate._json import canonical, exceeds, plain_bytes
from callgate._secret_redaction import Redactor, cut_middle, cut_text, cut_utf8
from callgate.calls import Note, RawCall, Scope, ToolResult
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
    "arguments_hash",
    "clean",
    "decode_reason",
    "decode_result",
    "valid_text",
    "verdict_of",
    "with_id",
]

MOST_RAW = 65_536
"""Of the arguments as they came, no more bytes are kept."""
_MAX_HASHED = 4_194_304
"""Arguments above this size are recorded without their hash: reading all of them would hold the event loop."""
MOST_CHARS = 4_096
"""Of an id, a name, a reason or a model's reasoning, no more is kept."""
MOST_NAME = 256
"""Of the name of a call, in its record and its result."""
_MOST_ERROR = 1_000
_MOST_TRACEBACK = 8_192
_WORDS = ("conversation", "turn", "tick", "iteration", "message_id", "phase", "principal", "actor", "workspace")
_words = attrgetter(*_WORDS)
_UNSAID: tuple[object, ...] = _words(Scope())
_NOTHING = Raw(b"null")


class _Json(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A body that is encoded as it stands."""

    def encode(self) -> bytes:
        return canonical(self)


class Received(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `call.received`."""

    id: str
    name: str
    arguments: str
    """The text as it came, up to 64 KiB; characters that UTF-8 cannot hold are escaped."""
    arguments_bytes: int = 0
    """The size of the whole, where it is larger than what is kept; of text above 4 MiB, its characters; of a mapping above that, 4 MiB."""
    arguments_sha256: str = ""
    """Of the whole, where it is larger than what is kept and up to 4 MiB."""
    origin: str = ""
    closed: str = "sealed"
    reasoning: str = ""
    idempotency_key: str = ""
    scope: dict[str, object] | None = None
    """What the scope says, without the host's own context."""
    parent: str = ""
    """The uid of the call that made this one."""
    beside: str = ""
    """What stood beside the arguments at the top level of the call, as JSON, up to 64 KiB."""


class ScopeFacts:
    """What the record says of a scope: worked out when it is first encoded, once for all calls that share it.

    Holds nothing of the host's, so that a kept record keeps nothing else alive.
    """

    __slots__ = ("_facts", "_redactor", "_scope")

    def __init__(self, scope: Scope, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self._scope: Scope | None = scope if scope.extra is scope.streaming is None else replace(scope, extra=None, streaming=None)
        self._facts: dict[str, object] | None = None

    def said(self) -> dict[str, object] | None:
        """What the scope says that it does not say by default."""
        scope = self._scope
        if scope is not None:
            self._facts = _facts_of(scope, self._redactor)
            self._scope = None  # only now: another thread may be here too
        return self._facts


class ReceivedCall(Struct, frozen=True, gc=False):
    """Becomes `Received` when it is encoded."""

    raw: RawCall
    scope: ScopeFacts
    parent: str
    redactor: Redactor | None

    def encode(self) -> bytes:
        raw, redactor = self.raw, self.redactor
        text, size, digest = _as_text(raw.arguments, redactor)
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
            scope=self.scope.said(),
            parent=self.parent,
            beside=_as_text(raw.beside, redactor)[0] if raw.beside else "",
        )
        return canonical(body)


class Verdict(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `call.verdict`. The allow of a call that starts is part of its `Started` instead."""

    verdict: str = ""
    """`allow`, `deny`, `ask`, or `modify`: the call goes on with other arguments and is judged again."""
    tool: str = ""
    rule: str = ""
    reason: str = ""
    identity: str = ""
    arguments: Raw = _NOTHING
    """What the verdict is about, keys in their own order: of `allow`, the final arguments, as the tool gets them; of `modify`, the new
    ones."""
    hook: str = ""
    """The hook that refused the call or changed its arguments; empty where a policy did."""
    notes: tuple[Note, ...] = ()
    approval: str = ""
    """Whose answer the call uses up: a human let it run, changed its arguments, or denied it."""
    judgments: tuple[object, ...] = ()
    """What judges said of the call, each a `Judgment`, where one was asked."""


class Started(_Json, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of `call.started`."""

    tool: str
    effect: str
    key: str
    runner: str
    timeout_s: float
    arguments_hash: str = ""
    """Of the final arguments; set where the call has effects."""
    asked_hash: str = ""
    """Of the arguments as they were handed in; set where the call has a key by which it is known again."""
    tick: str = ""
    """The tick whose dangerous calls this one counts among; empty where they are not counted."""
    claims: bool = False
    """Whether `call.claimed` follows before the tool's code is entered."""
    writer: str = ""
    """The engine that starts it, as its journal names it; empty where no other process could tell whether that one has ended."""
    effect_key: str = ""
    """What the tool gets as its idempotency key, if it has a key of its effect."""
    verdict: str = ""
    """`allow` in the first start since the gate let the call run; the fields below are as in `Verdict`."""
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
    """The body of every event that says why something ended or did not happen."""

    reason: str
    status: str = ""
    details: Mapping[str, object] | None = None


_VERDICTS = frozenset({"call.verdict", "call.started"})
_decode_verdict = msgspec.json.Decoder(Verdict).decode
decode_reason = msgspec.json.Decoder(Reason).decode
decode_result = msgspec.json.Decoder(ToolResult).decode


def verdict_of(event: Event) -> Verdict | None:
    """Return the verdict that an event records, on its own or with the start that it allowed; None if it records none."""
    verdict = _decode_verdict(event.body) if event.kind in _VERDICTS else None
    return verdict if verdict is not None and (verdict.verdict or event.kind == "call.verdict") else None


def arguments_hash(encoded: bytes) -> str:
    return hashlib.sha256(encoded).hexdigest()[:32]


def _facts_of(scope: Scope, redactor: Redactor | None) -> dict[str, object] | None:
    said = {word: value for word, value, unsaid in zip(_WORDS, _words(scope), _UNSAID, strict=True) if value != unsaid}
    if scope.deliberate and scope.allowed_tools is not None:
        said |= {"deliberate": True, "allowed_tools": sorted(scope.allowed_tools)}
    return {word: clean(value, redactor) if isinstance(value, str) else value for word, value in said.items()} or None


def _as_text(arguments: object, redactor: Redactor | None) -> tuple[str, int, str]:
    """What to keep of the arguments as they came; the size and hash of the whole where that is more. Reads no more than the bounds take."""
    if isinstance(arguments, Mapping):
        return _mapping_as_text(arguments, redactor)
    whole = arguments if isinstance(arguments, (bytes, str)) else str(arguments)
    if len(whole) > _MAX_HASHED:
        return cut_utf8(_in_utf8(whole[: 4 * MOST_RAW]), MOST_RAW, redactor), len(whole), ""
    raw = _in_utf8(whole)
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


def _in_utf8(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")


def valid_text(text: object) -> str:
    """The text, with what UTF-8 cannot hold escaped."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def with_id(raw: RawCall, clock: Clock) -> RawCall:
    """The call with an id: the model's, or one of ours where it gave none, so that its result can say which call it belongs to."""
    return raw if raw.id else replace(raw, id=f"call_{clock.new_id()}")


def clean(text: object, redactor: Redactor | None = None, chars: int = MOST_CHARS) -> str:
    """Bounded, and valid UTF-8 whatever came; redacted before it is cut."""
    return cut_text(str(text), chars, redactor).encode("utf-8", "backslashreplace").decode()
