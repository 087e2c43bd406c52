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

__all__ = ["again", "encoded", "failed", "normalise"]

_SHOWN = frozenset({"modified", "warning"})
"""Notes that the model reads beside the result; the others are in the metadata."""


def normalise(approved: ApprovedCall, checked: Checked, limits: Limits, blobs: BlobStore, redactor: Redactor | None) -> ToolResult:
    """The call's result, as everybody will see it."""
    call = approved.call
    notes = call.notes + checked.notes
    if checked.status != "ok":
        return _failure(call.raw, call.uid, call.tool.name, checked, limits, rule=approved.rule, notes=notes)
    value = checked.value
    raw, mime = (value.encode(), "text/plain") if type(value) is str else (plain_bytes(value), "application/json")
    if redactor is not None:
        raw = redactor.redact(raw)
        value = raw.decode() if mime == "text/plain" else decode(raw)
    text = raw.decode()
    content: tuple[Part, ...]
    blob = None
    if len(raw) <= limits.content_bytes:
        content = (Text(text=text),)
    else:
        blob = blobs.put(raw)
        content = (Text(text=excerpt(text, value, limits.content_bytes)), Text(text=_how_to_read(len(raw), blob)))
    if notes:
        content += tuple(Text(text=f"Note: {note.text}") for note in notes if note.kind in _SHOWN)
    return ToolResult(
        id=call.raw.id,
        uid=call.uid,
        name=call.tool.name,
        status="ok",
        content=content,
        structured=value if len(raw) <= limits.result_inline_bytes else None,
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


def failed(
    raw: RawCall, uid: str, name: str, error: CallFailed, limits: Limits, *, notes: tuple[Note, ...] = (), rule: str = ""
) -> ToolResult:
    """The result of a call that was refused on its way, or whose result was withheld."""
    checked = Checked(
        status=error.status, error=str(error), failure_class=error.failure_class, code=error.code, details=error.details, attempts=0
    )
    return _failure(raw, uid, name, checked, limits, rule=rule, notes=notes)


def _failure(raw: RawCall, uid: str, name: str, checked: Checked, limits: Limits, *, rule: str, notes: tuple[Note, ...]) -> ToolResult:
    reason = _bounded(checked.error or "the call failed", limits.error_bytes // 2)
    shown = {"status": checked.status, "error": reason, "code": checked.code, **(checked.details or {})}
    data = checked.value if checked.failure_class == "tool_declared" else None
    if data is not None:
        shown["result"] = data
    text = json_text(shown)
    if len(text.encode()) > limits.error_bytes:
        text = excerpt(text, None, limits.error_bytes)
    return ToolResult(
        id=raw.id,
        uid=uid,
        name=name,
        status=checked.status,
        content=(Text(text=text), *(Text(text=f"Note: {note.text}") for note in notes if note.kind in _SHOWN)),
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


def again(result: ToolResult, raw: RawCall, uid: str, *, joined: bool) -> ToolResult:
    """A stored result, given to a caller that handed the same call in again; `joined` if that call was still running."""
    return replace(result, id=raw.id, uid=uid, metadata=replace(result.metadata, replayed=not joined, joined=joined))


def encoded(result: ToolResult, limits: Limits) -> bytes:
    """The result as it is recorded: whole up to a size, by reference above it."""
    body = canonical(result)
    if len(body) <= limits.result_inline_bytes + limits.content_bytes:
        return body
    return canonical(replace(result, structured=None))


def _bounded(text: str, budget: int) -> str:
    raw = text.encode("utf-8", "backslashreplace")
    return raw.decode() if len(raw) <= budget else raw[:budget].decode("utf-8", "ignore") + " [cut]"


def _how_to_read(size: int, blob: str) -> str:
    return (
        f"[{size} bytes in all; the middle was left out. The whole is stored: read_result(digest='{blob}', offset=...) reads any part,"
        f" search_result(digest='{blob}', query='...') finds lines in it.]"
    )
