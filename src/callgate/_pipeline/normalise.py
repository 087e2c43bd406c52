"""Give every result the same format, whatever tool or failure it comes from.

The model gets text within a size budget that says how to continue; the whole result is stored by hash. No stack trace, no object, and no
secret that the redactor knows leaves this module. Decides nothing about the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._engine_limits import Limits
from callgate._json import plain_bytes, utf8
from callgate._json.truncated_result import excerpt
from callgate._option_checks import without_check
from callgate._pipeline.result_parts import FittedParts, fitted_parts
from callgate._run_state.event_bodies import MOST_NAME, clean
from callgate._secret_redaction import RedactedLog, Redactor
from callgate.calls import Metadata, Note, RawCall, ToolResult
from callgate.content_parts import Part, Text, data_of, part_text, with_data, without_data
from callgate.errors import CallFailed, RecordFailed
from callgate.protocols import BlobStore
from callgate.stage_types import Checked, ValidatedCall
from callgate.tools.registry import BoundTool, ToolRegistry

__all__ = ["Normaliser", "note_texts", "shown_notes"]

log = logging.getLogger("callgate")

_decode_checked = msgspec.json.Decoder(Checked).decode
_text = without_check(Text, Text(text=""))
_metadata = without_check(Metadata, Metadata())
_result = without_check(ToolResult, ToolResult(id="", uid="", name="", status="ok"))
_decode_result = msgspec.json.Decoder(ToolResult).decode

_SHOWN_NOTES = frozenset({"modified", "warning"})
"""The kinds of notes that the model reads beside the result. It also reads which arguments were dropped; the others are in the metadata."""
_NOTE = "Note: "
_MOST_DROPPED = 3
"""The number of dropped arguments that are named to the model."""
_MOST_NAMED = 20
"""The number of a tool's arguments that are named to the model."""
_COMMAND_END_BYTES = 64
_MIME_BYTES = 200
_READERS = {
    "read_result": "read_result(digest='{blob}', offset=...) reads any part",
    "search_result": "search_result(digest='{blob}', query='...') finds lines in it",
}
"""How each built-in tool reads a stored result, by the name of the tool."""
_NOT_KEPT = (
    "[{size} bytes in all; the middle was left out, and the whole could not be stored, so the rest cannot be read. The call did run: do not"
    " repeat it if it changes anything. To see the rest, ask for less at a time, and tell the operator.]"
)


class Normaliser:
    """The last stage of the route: makes the results of one engine."""

    def __init__(self, limits: Limits, blobs: BlobStore, redactor: Redactor | None, tools: ToolRegistry) -> None:
        self._limits = limits
        self._recorded_bytes = limits.result_inline_bytes + limits.content_bytes
        self._blobs = blobs
        self._redactor = redactor
        self._tools = tools
        self._log = RedactedLog(redactor)

    def result(self, call: ValidatedCall, rule: str, checked: Checked, *, redacted: bool = False) -> ToolResult:
        """Return the call's final result.

        Args:
            redacted: Whether secrets have already been removed from `checked`.
        """
        if self._redactor is not None and not redacted:
            return self._redacted(call.raw, call.uid, checked, lambda clean: self.result(call, rule, clean, redacted=True))
        if checked.message is not None or checked.image_metadata is not None or checked.server_fields is not None:
            checked = self._beside(checked)
        value = checked.value
        notes = call.notes + checked.notes
        if checked.status != "ok":
            return self._failure(call.raw, call.uid, call.tool.name, checked, rule, notes, call.tool)
        if checked.content:
            return self._of_parts(call, rule, checked, notes)
        shown = _content_of(value, call.tool.tool.content_key)
        raw, blob = shown.raw, None
        cut = len(raw) > self._limits.content_bytes
        if not cut:
            content: tuple[Part, ...] = (_text(text=raw.decode()),)
        else:
            blob, how = self._kept(raw, call.uid, call.scope.allowed_tools)
            content = (_text(text=excerpt(raw, shown.value, self._limits.content_bytes)), Text(text=how))
        if shown.note:
            content += (_text(text=_bounded(shown.note, self._limits.error_bytes)),)
        if notes:
            content += note_texts(notes, call.tool)
        return _result(
            id=call.raw.id,
            uid=call.uid,
            name=call.tool.name,
            status="ok",
            content=content,
            structured=value if len(raw if shown.value is value else plain_bytes(value)) <= self._limits.result_inline_bytes else None,
            message=checked.message,
            end_turn=checked.end_turn,
            image_metadata=checked.image_metadata,
            metadata=_metadata(
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
                server_fields=checked.server_fields,
                command_end=_command_end(value) if type(value) is dict and "exit_code" in value else "",
            ),
        )

    def _of_parts(self, call: ValidatedCall, rule: str, checked: Checked, notes: tuple[Note, ...]) -> ToolResult:
        """Return the result of a tool that returned parts."""
        found = self._fitted(checked.content, call.uid, call.scope.allowed_tools)
        return _result(
            id=call.raw.id,
            uid=call.uid,
            name=call.tool.name,
            status="ok",
            content=(*found.parts, *note_texts(notes, call.tool)),
            structured=checked.value if len(plain_bytes(checked.value)) <= self._limits.result_inline_bytes else None,
            message=checked.message,
            end_turn=checked.end_turn,
            image_metadata=checked.image_metadata,
            metadata=_metadata(
                bytes=found.size_bytes,
                truncated=found.truncated,
                mime=found.mime,
                blob=found.blob,
                duration_ms=checked.duration_ms,
                attempts=checked.attempts,
                rule=rule,
                cached=checked.cached,
                joined=checked.joined,
                notes=notes,
                server_fields=checked.server_fields,
            ),
        )

    def _fitted(self, parts: Sequence[Part], uid: str, allowed: Container[str] | None = None) -> FittedParts:
        return fitted_parts(parts, self._limits, lambda whole: self._kept(whole, uid, allowed))

    def refusal(self, raw: RawCall, uid: str, name: str, error: CallFailed, notes: tuple[Note, ...] = (), rule: str = "") -> ToolResult:
        """Return the result of a call that was refused, or whose result was withheld."""
        text = error.told if isinstance(error, RecordFailed) else str(error)
        checked = Checked(
            status=error.status, error=text, failure_class=error.failure_class, code=error.code, details=error.details, attempts=0
        )
        shown = clean(name, self._redactor, MOST_NAME)  # the name may not be that of a tool
        return self._redacted(raw, uid, checked, lambda redacted: self._failure(raw, uid, shown, redacted, rule, notes))

    def recorded(self, result: ToolResult) -> bytes:
        """Return the result as it is recorded: whole up to a size limit, by reference above it. Its values keep the order of their keys.

        The record is redacted as a whole. An image that the redactor would damage is replaced by a text.
        """
        if self._redactor is not None and any(map(data_of, result.content)):
            result = replace(result, content=tuple([self._undamaged(part, self._redactor) for part in result.content]))
        body = plain_bytes(result)
        if len(body) <= self._recorded_bytes:
            return body
        return plain_bytes(replace(result, structured=None))

    def _undamaged(self, part: Part, redactor: Redactor) -> Part:
        data = data_of(part).encode()
        if not data or redactor.redact(data) == data:
            return part
        return _text(text=f"{part_text(part)} [It is not in the record, because the redactor takes a part of it for a secret.]")

    def _beside(self, checked: Checked) -> Checked:
        """Limit the size of the message, the image metadata and the server's fields that a tool returns in addition to its value.

        These are not stored with the whole result.
        """
        message, picture, notes = checked.message, checked.image_metadata, checked.notes
        if message is not None:
            message = _bounded(message, self._limits.error_bytes)
        if picture is not None and (size := len(plain_bytes(picture))) > self._limits.content_bytes:
            said = f"The result's image_metadata has {size} bytes; {self._limits.content_bytes} is the limit. It was left out."
            picture, notes = None, (*notes, Note(kind="dropped", text=said))
        fields = checked.server_fields
        if fields is not None and (size := len(plain_bytes(fields))) > self._limits.content_bytes:
            said = (
                f"The server's other fields of the result have {size} bytes; {self._limits.content_bytes} is the limit. They were left out."
            )
            fields, notes = None, (*notes, Note(kind="dropped", text=said))
        return replace(checked, message=message, image_metadata=picture, notes=notes, server_fields=fields)

    def _kept(self, whole: bytes, uid: str, allowed: Container[str] | None = None) -> tuple[str | None, str]:
        """Store the whole content.

        Return its hash and a hint how to read it, which names only tools that the model can call. If the store fails,
        the result is still returned, without the part that was left out.
        """
        try:
            blob = self._blobs.put(whole)
        except BaseException as error:
            if not is_own_failure(error):
                raise
            self._log.error("The whole result of %s could not be stored", uid, error=error)
            return None, _NOT_KEPT.format(size=len(whole))
        readers = [text for name, text in _READERS.items() if self._reads(name) and (allowed is None or name in allowed)]
        return blob, _how_to_read(len(whole), blob, readers)

    def _reads(self, name: str) -> bool:
        """Return whether the engine has this built-in tool, and not another tool with its name."""
        tool = self._tools.get(name)
        return tool is not None and "digest" in tool.schema.properties

    def _failure(
        self, raw: RawCall, uid: str, name: str, checked: Checked, rule: str, notes: tuple[Note, ...], tool: BoundTool | None = None
    ) -> ToolResult:
        reason = _bounded(checked.error or "the call failed", self._limits.error_bytes // 2)
        told = {"status": checked.status, "error": reason, "code": checked.code, **(checked.details or {})}
        data = checked.value if checked.failure_class == "tool_declared" else None
        if data is not None:
            told["result"] = data
        structured = data if data is not None else checked.details
        ran = checked.attempts > 0 or checked.joined
        content, size, truncated, blob = self._told(told, structured if ran else None, uid)
        if checked.content:
            content += self._fitted([part for part in checked.content if not isinstance(part, Text)], uid).parts
        return _result(
            id=raw.id,
            uid=uid,
            name=name,
            status=checked.status,
            content=(*content, *note_texts(notes, tool if ran else None)),
            structured=structured if size <= self._limits.result_inline_bytes else None,
            error=reason,
            failure_class=checked.failure_class,
            code=checked.code,
            message=checked.message,
            end_turn=checked.end_turn,
            image_metadata=checked.image_metadata,
            metadata=_metadata(
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
                server_fields=checked.server_fields,
                untrusted=ran,
            ),
        )

    def _told(self, told: dict[str, object], output: object, uid: str) -> tuple[tuple[Part, ...], int, bool, str | None]:
        """Return four values about a failure: the text for the model, the size of the whole content, whether the tool's
        output was shortened, and the hash of the whole content.
        """
        raw, most = plain_bytes(told), self._limits.error_bytes
        if len(raw) <= most:
            return (_text(text=raw.decode()),), len(raw), False, None
        if output is None:
            return (_text(text=excerpt(raw, told, most)),), len(raw), False, None
        whole = plain_bytes(output)
        blob, how = self._kept(whole, uid)
        return (_text(text=excerpt(raw, told, most - len(how) - 1)), Text(text=how)), len(whole), True, blob

    def _redacted(self, raw: RawCall, uid: str, checked: Checked, build: Callable[[Checked], ToolResult]) -> ToolResult:
        """Return the result of `build` without secrets.

        The data is redacted twice: the input, so that no secret is cut in two or stored with the whole, and the output, so that no field is
        missed. Only the two ids are restored, because they connect the result with its call, and the bytes of images and files, which
        would no longer be valid.
        """
        if self._redactor is None:
            return build(checked)
        given = checked.content
        try:
            hidden = replace(_in_unicode(checked), content=without_data(given)) if given else _in_unicode(checked)
            redacted = _decode_checked(self._redactor.redact(plain_bytes(hidden)))
            redacted = replace(redacted, content=with_data(redacted.content, given)) if given else redacted
        except BaseException as error:
            if not is_own_failure(error):
                raise
            return _withheld(raw, uid, checked, error)
        result = build(redacted)
        try:
            cleaned = _decode_result(self._redactor.redact(plain_bytes(replace(result, content=without_data(result.content)))))
            return replace(cleaned, id=raw.id, uid=uid, content=with_data(cleaned.content, result.content))
        except BaseException as error:
            if not is_own_failure(error):
                raise
            return _withheld(raw, uid, checked, error)


class _Content(Struct, frozen=True):
    """The content of a value, and its properties."""

    value: object
    raw: bytes
    mime: str
    key: str = ""
    size: int | None = None
    """The size of the whole, as reported by the tool."""
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
    """Escape lone surrogates, which the text of a tool's exception may contain."""
    if checked.error is None or checked.error.isascii():
        return checked
    return replace(checked, error=checked.error.encode("utf-8", "backslashreplace").decode())


def _withheld(raw: RawCall, uid: str, checked: Checked, error: BaseException) -> ToolResult:
    """Return a result without any text of the call or of the failure, because the redactor failed and they may contain secrets."""
    log.error("The redactor failed on the result of %s (%s); it is withheld", uid, type(error).__name__)
    ran = checked.attempts > 0 or checked.status == "ok"
    told = "The call ran, but its result" if ran else "The call did not run, and the reason"
    reason = f"{told} is withheld: secrets could not be taken out of it. Do not repeat the call; tell the operator."
    return ToolResult(
        id=raw.id,
        uid=uid,
        name="",
        status="unknown" if checked.status == "ok" else checked.status,
        content=(_text(text=plain_bytes({"error": reason, "code": "redactor_failed"}).decode()),),
        error=reason,
        failure_class=checked.failure_class or "outcome_unknown",
        code="redactor_failed",
        metadata=Metadata(mime="application/json", attempts=checked.attempts, untrusted=False),
    )


def note_texts(notes: tuple[Note, ...], tool: BoundTool | None = None) -> tuple[Part, ...]:
    """Return the notes that the model reads.

    Args:
        tool: The tool, if it has run: its arguments that were dropped are named.
    """
    dropped = [note.text for note in notes if note.kind == "dropped" and note.path] if tool is not None else []
    shown = tuple(_text(text=f"{_NOTE}{note.text}") for note in notes if note.kind in _SHOWN_NOTES)
    return (_text(text=_about_dropped(dropped, tool)), *shown) if dropped and tool is not None else shown


def _about_dropped(sentences: list[str], tool: BoundTool) -> str:
    names = sorted(tool.schema.properties)
    takes = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "") if names else "no arguments"
    more = len(sentences) - _MOST_DROPPED
    told = sentences[:_MOST_DROPPED] + ([f"{more} more were dropped."] if more > 0 else [])
    return f"{_NOTE}{' '.join(told)} {tool.name} takes {takes}."


def shown_notes(result: ToolResult) -> int:
    """Return how many of the last parts of a result's content are notes."""
    notes = result.metadata.notes
    count = sum(note.kind in _SHOWN_NOTES for note in notes)
    before = result.content[-count - 1] if len(result.content) > count and any(note.kind == "dropped" for note in notes) else None
    is_note = isinstance(before, Text) and before.text.startswith(_NOTE) and f" {result.name} takes " in before.text
    return count + is_note


def _bounded(text: str, budget: int) -> str:
    raw = text.encode("utf-8", "backslashreplace")
    return raw.decode() if len(raw) <= budget else raw[:budget].decode("utf-8", "ignore") + " [cut]"


def _how_to_read(size: int, blob: str, readers: list[str]) -> str:
    left_out = f"[{size} bytes in all; the middle was left out."
    if not readers:
        return f"{left_out} No tool here reads the rest. To see it, ask for less at a time; do not repeat a call that changes something.]"
    return f"{left_out} The whole is stored: {', '.join(text.format(blob=blob) for text in readers)}.]"


def _command_end(value: dict[str, object]) -> str:
    """Return how a command ended, from the value of the tool that ran it; empty for exit code 0. The call succeeds in any case."""
    code, signal, limit_s = (value.get(name) for name in ("exit_code", "signal", "timeout_s"))
    if value.get("timed_out") is True:
        return f"timed out after {limit_s:g} s" if isinstance(limit_s, (int, float)) else "timed out"
    if isinstance(signal, str):
        return _bounded(f"killed by {signal}", _COMMAND_END_BYTES)
    return f"exit code {code}" if isinstance(code, int) and code != 0 else ""
