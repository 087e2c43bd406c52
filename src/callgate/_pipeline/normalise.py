"""Give every result one shape, whatever tool, failure or family it comes from.

The model gets text within a budget that says what to do next; the whole is kept by hash. No stack trace, no object, no secret that a
redactor knows leaves here. Decides nothing about the call.
"""

from __future__ import annotations

from msgspec.structs import replace

from callgate._json import canonical, decode, json_text, plain_bytes
from callgate._limits import Limits
from callgate._pipeline.excerpt import excerpt
from callgate._redact import Redactor
from callgate.calls import Metadata, Note, Part, RawCall, Text, ToolResult
from callgate.errors import CallFailed
from callgate.protocols import BlobStore
from callgate.route import ApprovedCall, Checked

__all__ = ["Normaliser"]

_SHOWN = frozenset({"modified", "warning"})
"""Notes that the model reads beside the result; the others are in the metadata."""


class Normaliser:
    """The last stage, for the results of one engine."""

    def __init__(self, limits: Limits, blobs: BlobStore, redactor: Redactor | None) -> None:
        self._limits = limits
        self._blobs = blobs
        self._redactor = redactor

    def result(self, approved: ApprovedCall, checked: Checked) -> ToolResult:
        """The call's result, as everybody will see it."""
        call = approved.call
        notes = call.notes + checked.notes
        if checked.status != "ok":
            return self._failure(call.raw, call.uid, call.tool.name, checked, approved.rule, notes)
        value = checked.value
        raw, mime = (value.encode(), "text/plain") if type(value) is str else (plain_bytes(value), "application/json")
        if self._redactor is not None:
            raw = self._redactor.redact(raw)
            value = raw.decode() if mime == "text/plain" else decode(raw)
        content, blob = self._content(raw, value, notes)
        return ToolResult(
            id=call.raw.id,
            uid=call.uid,
            name=call.tool.name,
            status="ok",
            content=content,
            structured=value if len(raw) <= self._limits.result_inline_bytes else None,
            message=checked.message,
            end_turn=checked.end_turn,
            image_metadata=checked.image_metadata,
            metadata=Metadata(
                bytes=len(raw),
                truncated=blob is not None,
                mime=mime,
                blob=blob,
                duration_ms=checked.duration_ms,
                attempts=checked.attempts,
                rule=approved.rule,
                cached=checked.cached,
                joined=checked.joined,
                notes=notes,
            ),
        )

    def refusal(self, raw: RawCall, uid: str, name: str, error: CallFailed, notes: tuple[Note, ...] = (), rule: str = "") -> ToolResult:
        """The result of a call that was refused on its way, or whose result was withheld."""
        checked = Checked(
            status=error.status, error=str(error), failure_class=error.failure_class, code=error.code, details=error.details, attempts=0
        )
        return self._failure(raw, uid, name, checked, rule, notes)

    def recorded(self, result: ToolResult) -> bytes:
        """The result as it is recorded: whole up to a size, by reference above it."""
        body = canonical(result)
        if len(body) <= self._limits.result_inline_bytes + self._limits.content_bytes:
            return body
        return canonical(replace(result, structured=None))

    def _content(self, raw: bytes, value: object, notes: tuple[Note, ...]) -> tuple[tuple[Part, ...], str | None]:
        """What the model sees, and the hash of the whole where that is more."""
        if len(raw) <= self._limits.content_bytes:
            text = raw.decode()
            return (Text(text=text), *_shown(notes)) if notes else (Text(text=text),), None
        blob = self._blobs.put(raw)
        head_and_tail = Text(text=excerpt(raw, value, self._limits.content_bytes))
        return (head_and_tail, Text(text=_how_to_read(len(raw), blob)), *_shown(notes)), blob

    def _failure(self, raw: RawCall, uid: str, name: str, checked: Checked, rule: str, notes: tuple[Note, ...]) -> ToolResult:
        limits = self._limits
        reason = self._redacted(_bounded(checked.error or "the call failed", limits.error_bytes // 2))
        told = {"status": checked.status, "error": reason, "code": checked.code, **(checked.details or {})}
        data = checked.value if checked.failure_class == "tool_declared" else None
        if data is not None:
            told["result"] = data
        text = self._redacted(json_text(told))
        if len(text.encode()) > limits.error_bytes:
            text = excerpt(text.encode(), None, limits.error_bytes)
        return ToolResult(
            id=raw.id,
            uid=uid,
            name=name,
            status=checked.status,
            content=(Text(text=text), *_shown(notes)),
            structured=data if data is not None else checked.details,
            error=reason,
            failure_class=checked.failure_class,
            code=checked.code,
            message=checked.message,
            end_turn=checked.end_turn,
            image_metadata=checked.image_metadata,
            metadata=Metadata(
                bytes=len(text.encode()),
                mime="application/json",
                duration_ms=checked.duration_ms,
                attempts=checked.attempts,
                rule=rule,
                cached=checked.cached,
                joined=checked.joined,
                notes=notes,
                untrusted=checked.attempts > 0,
            ),
        )

    def _redacted(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.redact(text.encode()).decode()


def _shown(notes: tuple[Note, ...]) -> tuple[Part, ...]:
    return tuple(Text(text=f"Note: {note.text}") for note in notes if note.kind in _SHOWN)


def _bounded(text: str, budget: int) -> str:
    raw = text.encode("utf-8", "backslashreplace")
    return raw.decode() if len(raw) <= budget else raw[:budget].decode("utf-8", "ignore") + " [cut]"


def _how_to_read(size: int, blob: str) -> str:
    return (
        f"[{size} bytes in all; the middle was left out. The whole is stored: read_result(digest='{blob}', offset=...) reads any part,"
        f" search_result(digest='{blob}', query='...') finds lines in it.]"
    )
