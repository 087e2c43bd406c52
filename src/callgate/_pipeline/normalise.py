"""Give every result one shape, whatever tool, failure or family it comes from.

The model gets text within a budget that says what to do next; the whole is kept by hash. No stack trace, no object, no secret that a
redactor knows leaves here. Decides nothing about the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._json import canonical, plain_bytes, utf8
from callgate._json.result_excerpt import excerpt
from callgate._limits import Limits
from callgate._pipeline.event_bodies import MOST_NAME, clean
from callgate._redact import RedactedLog, Redactor
from callgate.calls import Metadata, Note, Part, RawCall, Text, ToolResult
from callgate.errors import CallFailed
from callgate.protocols import BlobStore
from callgate.route import Checked, ValidatedCall

__all__ = ["Normaliser"]

log = logging.getLogger("callgate")

_decode_checked = msgspec.json.Decoder(Checked).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode

_SHOWN = frozenset({"modified", "warning"})
"""Notes that the model reads beside the result; the others are in the metadata."""
_COMMAND_END_BYTES = 64
_MIME_BYTES = 200
_NOT_KEPT = (
    "[{size} bytes in all; the middle was left out, and the whole could not be stored, so the rest cannot be read. The call did run: do not"
    " repeat it if it changes anything. To see the rest, ask for less at a time, and tell the operator.]"
)


class Normaliser:
    """The last stage, for the results of one engine."""

    def __init__(self, limits: Limits, blobs: BlobStore, redactor: Redactor | None) -> None:
        self._limits = limits
        self._recorded_bytes = limits.result_inline_bytes + limits.content_bytes
        self._blobs = blobs
        self._redactor = redactor
        self._log = RedactedLog(redactor)

    def result(self, call: ValidatedCall, rule: str, checked: Checked, *, redacted: bool = False) -> ToolResult:
        """The call's result, as everybody will see it.

        Args:
            redacted: Whether secrets have been taken out of `checked`.
        """
        if self._redactor is not None and not redacted:
            return self._redacted(call.raw, call.uid, checked, lambda clean: self.result(call, rule, clean, redacted=True))
        if checked.message is not None or checked.image_metadata is not None:
            checked = self._beside(checked)
        value = checked.value
        notes = call.notes + checked.notes
        if checked.status != "ok":
            return self._failure(call.raw, call.uid, call.tool.name, checked, rule, notes)
        shown = _content_of(value, call.tool.tool.content_key)
        raw, blob = shown.raw, None
        cut = len(raw) > self._limits.content_bytes
        if not cut:
            content: tuple[Part, ...] = (Text(text=raw.decode()),)
        else:
            blob, how = self._kept(raw, call.uid)
            content = (Text(text=excerpt(raw, shown.value, self._limits.content_bytes)), Text(text=how))
        if shown.note:
            content += (Text(text=_bounded(shown.note, self._limits.error_bytes)),)
        if notes:
            content += _shown(notes)
        return ToolResult(
            id=call.raw.id,
            uid=call.uid,
            name=call.tool.name,
            status="ok",
            content=content,
            structured=value if len(raw if shown.value is value else plain_bytes(value)) <= self._limits.result_inline_bytes else None,
            message=checked.message,
            end_turn=checked.end_turn,
            image_metadata=checked.image_metadata,
            metadata=Metadata(
                bytes=len(raw) if shown.size is None else shown.size,
                truncated=cut or shown.partial,
                mime=shown.mime,
                content_key=shown.key,
                blob=blob,
                duration_ms=checked.duration_ms,
                attempts=checked.attempts,
                rule=rule,
                cached=checked.cached,
                joined=checked.joined,
                notes=notes,
                command_end=_command_end(value) if type(value) is dict and "exit_code" in value else "",
            ),
        )

    def refusal(self, raw: RawCall, uid: str, name: str, error: CallFailed, notes: tuple[Note, ...] = (), rule: str = "") -> ToolResult:
        """The result of a call that was refused on its way, or whose result was withheld."""
        checked = Checked(
            status=error.status, error=str(error), failure_class=error.failure_class, code=error.code, details=error.details, attempts=0
        )
        shown = clean(name, self._redactor, MOST_NAME)  # no tool may have it
        return self._redacted(raw, uid, checked, lambda redacted: self._failure(raw, uid, shown, redacted, rule, notes))

    def recorded(self, result: ToolResult) -> bytes:
        """The result as it is recorded: whole up to a size, by reference above it."""
        body = canonical(result)
        if len(body) <= self._recorded_bytes:
            return body
        return canonical(replace(result, structured=None))

    def _beside(self, checked: Checked) -> Checked:
        """What a tool says beside its data, within bounds: none of it has a place where the whole is kept."""
        message, picture, notes = checked.message, checked.image_metadata, checked.notes
        if message is not None:
            message = _bounded(message, self._limits.error_bytes)
        if picture is not None and (size := len(plain_bytes(picture))) > self._limits.content_bytes:
            said = f"The result's image_metadata has {size} bytes; {self._limits.content_bytes} is the limit. It was left out."
            picture, notes = None, (*notes, Note(kind="dropped", text=said))
        return replace(checked, message=message, image_metadata=picture, notes=notes)

    def _kept(self, whole: bytes, uid: str) -> tuple[str | None, str]:
        """The hash of the whole, and how the model reads the rest; a store that fails costs the rest, and not what the call came to."""
        try:
            blob = self._blobs.put(whole)
        except BaseException as error:
            if not is_own_failure(error):
                raise
            self._log.error("The whole result of %s could not be stored", uid, error=error)
            return None, _NOT_KEPT.format(size=len(whole))
        return blob, _how_to_read(len(whole), blob)

    def _failure(self, raw: RawCall, uid: str, name: str, checked: Checked, rule: str, notes: tuple[Note, ...]) -> ToolResult:
        reason = _bounded(checked.error or "the call failed", self._limits.error_bytes // 2)
        told = {"status": checked.status, "error": reason, "code": checked.code, **(checked.details or {})}
        data = checked.value if checked.failure_class == "tool_declared" else None
        if data is not None:
            told["result"] = data
        structured = data if data is not None else checked.details
        ran = checked.attempts > 0 or checked.joined
        content, size, truncated, blob = self._told(told, structured if ran else None, uid)
        return ToolResult(
            id=raw.id,
            uid=uid,
            name=name,
            status=checked.status,
            content=(*content, *_shown(notes)),
            structured=structured if size <= self._limits.result_inline_bytes else None,
            error=reason,
            failure_class=checked.failure_class,
            code=checked.code,
            message=checked.message,
            end_turn=checked.end_turn,
            image_metadata=checked.image_metadata,
            metadata=Metadata(
                bytes=size,
                truncated=truncated,
                mime="application/json",
                blob=blob,
                duration_ms=checked.duration_ms,
                attempts=checked.attempts,
                rule=rule,
                cached=checked.cached,
                joined=checked.joined,
                notes=notes,
                untrusted=ran,
            ),
        )

    def _told(self, told: dict[str, object], output: object, uid: str) -> tuple[tuple[Part, ...], int, bool, str | None]:
        """What the model sees of a failure, the size of the whole, whether it sees less of what the tool gave, and its hash."""
        raw, most = plain_bytes(told), self._limits.error_bytes
        if len(raw) <= most:
            return (Text(text=raw.decode()),), len(raw), False, None
        if output is None:
            return (Text(text=excerpt(raw, told, most)),), len(raw), False, None
        whole = plain_bytes(output)
        blob, how = self._kept(whole, uid)
        return (Text(text=excerpt(raw, told, most - len(how) - 1)), Text(text=how)), len(whole), True, blob

    def _redacted(self, raw: RawCall, uid: str, checked: Checked, build: Callable[[Checked], ToolResult]) -> ToolResult:
        """What `build` makes of `checked`, without secrets.

        Redacted twice: what goes in, so that no secret is cut in two or kept with the whole, and all that comes out, so that no field is
        forgotten. Only the two ids stay as they are: by them the result finds its call.
        """
        if self._redactor is None:
            return build(checked)
        try:
            redacted = _decode_checked(self._redactor.redact(plain_bytes(_in_unicode(checked))))
        except BaseException as error:
            if not is_own_failure(error):
                raise
            return _withheld(raw, uid, checked, error)
        result = build(redacted)
        try:
            return replace(_decode_result(self._redactor.redact(canonical(result))), id=raw.id, uid=uid)
        except BaseException as error:
            if not is_own_failure(error):
                raise
            return _withheld(raw, uid, checked, error)


class _Content(Struct, frozen=True):
    """What of a value is its content, and what is known about it."""

    value: object
    raw: bytes
    mime: str
    key: str = ""
    size: int | None = None
    """Of the whole, as the tool says."""
    partial: bool = False
    note: str = ""


def _content_of(value: object, key: str | None) -> _Content:
    if type(value) is str:
        return _Content(value, value.encode() if value.isascii() else utf8(value), "text/plain")
    if key is None or type(value) is not dict or type(value.get(key)) is not str:
        return _Content(value, plain_bytes(value), "application/json")
    text, mime, size, note = value[key], value.get("mime"), value.get("bytes"), value.get("note")
    return _Content(
        value=text,
        raw=utf8(text),
        mime=_bounded(mime, _MIME_BYTES) if type(mime) is str and mime else "text/plain",
        key=key,
        size=size if type(size) is int and size >= 0 else None,
        partial=value.get("truncated") is True,
        note=note if type(note) is str else "",
    )


def _in_unicode(checked: Checked) -> Checked:
    """What a tool raises may hold halves of surrogate pairs."""
    if checked.error is None or checked.error.isascii():
        return checked
    return replace(checked, error=checked.error.encode("utf-8", "backslashreplace").decode())


def _withheld(raw: RawCall, uid: str, checked: Checked, error: BaseException) -> ToolResult:
    """Where the redactor fails, nothing is shown that a secret could be in, nor is what the failure says."""
    log.error("The redactor failed on the result of %s (%s); it is withheld", uid, type(error).__name__)
    ran = checked.attempts > 0 or checked.status == "ok"
    told = "The call ran, but its result" if ran else "The call did not run, and the reason"
    reason = f"{told} is withheld: secrets could not be taken out of it. Do not repeat the call; tell the operator."
    return ToolResult(
        id=raw.id,
        uid=uid,
        name="",
        status="unknown" if checked.status == "ok" else checked.status,
        content=(Text(text=plain_bytes({"error": reason, "code": "redactor_failed"}).decode()),),
        error=reason,
        failure_class=checked.failure_class or "outcome_unknown",
        code="redactor_failed",
        metadata=Metadata(mime="application/json", attempts=checked.attempts, untrusted=False),
    )


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


def _command_end(value: dict[str, object]) -> str:
    """How a command ended, from the value of a tool that ran it; empty for exit code 0. Such a tool succeeds whatever its command does."""
    code, signal, limit_s = (value.get(name) for name in ("exit_code", "signal", "timeout_s"))
    if value.get("timed_out") is True:
        return f"timed out after {limit_s:g} s" if isinstance(limit_s, (int, float)) else "timed out"
    if isinstance(signal, str):
        return _bounded(f"killed by {signal}", _COMMAND_END_BYTES)
    return f"exit code {code}" if isinstance(code, int) and code != 0 else ""
