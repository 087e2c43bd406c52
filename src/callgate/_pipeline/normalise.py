"""Give every result the same format, whatever tool or failure it comes from.

The model gets text within a size budget that says how to continue; the whole result is stored by hash. No stack trace, no object, and no
secret that the redactor knows leaves this module. Decides nothing about the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._engine_limits import Limits
from callgate._json import plain_bytes, utf8
from callgate._json.truncated_result import excerpt
from callgate._option_checks import without_check
from callgate._owned_results import store_result
from callgate._pipeline.result_notes import note_texts
from callgate._pipeline.result_parts import ShownContent, fit_parts
from callgate._run_state.event_bodies import MOST_NAME, clean
from callgate._secret_redaction import RedactedLog, Redactor
from callgate.calls import Metadata, Note, RawCall, Scope, ToolResult
from callgate.content_parts import Part, Text, data_of, part_text, with_data, without_data
from callgate.errors import CallFailed, RecordFailed
from callgate.protocols import BlobStore
from callgate.stage_types import Checked, ValidatedCall
from callgate.tools.registry import BoundTool, ToolRegistry

__all__ = ["Normaliser"]

log = logging.getLogger("callgate")

_decode_checked = msgspec.json.Decoder(Checked).decode
_text = without_check(Text, Text(text=""))
_metadata = without_check(Metadata, Metadata())
_result = without_check(ToolResult, ToolResult(id="", uid="", name="", status="ok"))
_decode_result = msgspec.json.Decoder(ToolResult).decode

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
            return self._redact(call.raw, call.uid, checked, lambda clean: self.result(call, rule, clean, redacted=True))
        if checked.message is not None or checked.image_metadata is not None or checked.server_fields is not None:
            checked = self._limit_extra_fields(checked)
        head = _ResultHead(call.raw, call.uid, call.tool.name, rule, call.notes + checked.notes, call.tool, call.scope)
        if checked.status != "ok":
            return self._failure(head, checked)
        if checked.content:
            shown = self._fit_parts(checked.content, call.uid, call.scope)
            structured = checked.value if len(plain_bytes(checked.value)) <= self._limits.result_inline_bytes else None
        else:
            shown, structured = self._show_value(call, checked.value)
        return _assemble(head, checked, shown, structured)

    def _show_value(self, call: ValidatedCall, value: object) -> tuple[ShownContent, object]:
        """Return what is shown of the value that a tool returned, and the value if it is small."""
        found = _content_of(value, call.tool.tool.content_key)
        raw, blob = found.raw, None
        cut = len(raw) > self._limits.content_bytes
        if not cut:
            parts: tuple[Part, ...] = (_text(text=raw.decode()),)
        else:
            blob, how = self._store_whole(raw, call.uid, call.scope)
            parts = (_text(text=excerpt(raw, found.value, self._limits.content_bytes)), Text(text=how))
        if found.note:
            parts += (_text(text=_shorten(found.note, self._limits.error_bytes)),)
        small = len(raw if found.value is value else plain_bytes(value)) <= self._limits.result_inline_bytes
        size = len(raw) if found.size is None else found.size
        end = _command_end(value) if type(value) is dict and "exit_code" in value else ""
        return ShownContent(parts, size, cut or found.partial, found.mime, blob, found.key, end), value if small else None

    def _fit_parts(self, parts: Sequence[Part], uid: str, scope: Scope) -> ShownContent:
        return fit_parts(parts, self._limits, lambda whole: self._store_whole(whole, uid, scope))

    def refusal(self, raw: RawCall, uid: str, name: str, error: CallFailed, notes: tuple[Note, ...] = (), rule: str = "") -> ToolResult:
        """Return the result of a call that was refused, or whose result was withheld."""
        text = error.told if isinstance(error, RecordFailed) else str(error)
        checked = Checked(
            status=error.status, error=text, failure_class=error.failure_class, code=error.code, details=error.details, attempts=0
        )
        shown = clean(name, self._redactor, MOST_NAME)  # the name may not be that of a tool
        return self._redact(raw, uid, checked, lambda redacted: self._failure(_ResultHead(raw, uid, shown, rule, notes), redacted))

    def encode_for_record(self, result: ToolResult) -> bytes:
        """Return the result as it is recorded: whole up to a size limit, by reference above it. Its values keep the order of their keys.

        The record is redacted as a whole. An image that the redactor would damage is replaced by a text.
        """
        if self._redactor is not None and any(map(data_of, result.content)):
            result = replace(result, content=tuple([self._replace_damaged(part, self._redactor) for part in result.content]))
        body = plain_bytes(result)
        if len(body) <= self._recorded_bytes:
            return body
        return plain_bytes(replace(result, structured=None))

    def _replace_damaged(self, part: Part, redactor: Redactor) -> Part:
        data = data_of(part).encode()
        if not data or redactor.redact(data) == data:
            return part
        return _text(text=f"{part_text(part)} [It is not in the record, because the redactor takes a part of it for a secret.]")

    def _limit_extra_fields(self, checked: Checked) -> Checked:
        """Limit the size of the message, the image metadata and the server's fields that a tool returns in addition to its value.

        These are not stored with the whole result.
        """
        message, picture, notes = checked.message, checked.image_metadata, checked.notes
        if message is not None:
            message = _shorten(message, self._limits.error_bytes)
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

    def _store_whole(self, whole: bytes, uid: str, scope: Scope) -> tuple[str | None, str]:
        """Store the whole content for the principal of the call.

        Return its hash and a hint how to read it, which names only tools that the model can call. If the store fails,
        the result is still returned, without the part that was left out.
        """
        try:
            blob = store_result(self._blobs, whole, scope.principal)
        except BaseException as error:
            if not is_own_failure(error):
                raise
            self._log.error("The whole result of %s could not be stored", uid, error=error)
            return None, _NOT_KEPT.format(size=len(whole))
        allowed = scope.allowed_tools
        readers = [text for name, text in _READERS.items() if self._reads(name) and (allowed is None or name in allowed)]
        return blob, _how_to_read(len(whole), blob, readers)

    def _reads(self, name: str) -> bool:
        """Return whether the engine has this built-in tool, and not another tool with its name."""
        tool = self._tools.get(name)
        return tool is not None and "digest" in tool.schema.properties

    def _failure(self, head: _ResultHead, checked: Checked) -> ToolResult:
        reason = _shorten(checked.error or "the call failed", self._limits.error_bytes // 2)
        failure = {"status": checked.status, "error": reason, "code": checked.code, **(checked.details or {})}
        data = checked.value if checked.failure_class == "tool_declared" else None
        if data is not None:
            failure["result"] = data
        structured = data if data is not None else checked.details
        has_run = checked.attempts > 0 or checked.joined
        shown = self._show_failure(failure, structured if has_run else None, head)
        if checked.content:
            media = self._fit_parts([part for part in checked.content if not isinstance(part, Text)], head.uid, head.scope)
            shown = replace(shown, parts=shown.parts + media.parts)
        structured = structured if shown.size_bytes <= self._limits.result_inline_bytes else None
        return _assemble(head if has_run else replace(head, ran=None), checked, shown, structured, error=reason)

    def _show_failure(self, failure: dict[str, object], output: object, head: _ResultHead) -> ShownContent:
        """Return what is shown of a failure; the size is that of the tool's output, where this was shortened."""
        raw, most = plain_bytes(failure), self._limits.error_bytes
        if len(raw) <= most:
            return ShownContent((_text(text=raw.decode()),), len(raw), mime="application/json")
        if output is None:
            return ShownContent((_text(text=excerpt(raw, failure, most)),), len(raw), mime="application/json")
        whole = plain_bytes(output)
        blob, how = self._store_whole(whole, head.uid, head.scope)
        parts = (_text(text=excerpt(raw, failure, most - len(how) - 1)), Text(text=how))
        return ShownContent(parts, len(whole), truncated=True, mime="application/json", blob=blob)

    def _redact(self, raw: RawCall, uid: str, checked: Checked, build: Callable[[Checked], ToolResult]) -> ToolResult:
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
            return _withhold(raw, uid, checked, error)
        result = build(redacted)
        try:
            cleaned = _decode_result(self._redactor.redact(plain_bytes(replace(result, content=without_data(result.content)))))
            return replace(cleaned, id=raw.id, uid=uid, content=with_data(cleaned.content, result.content))
        except BaseException as error:
            if not is_own_failure(error):
                raise
            return _withhold(raw, uid, checked, error)


class _ResultHead(Struct, frozen=True):
    """What a result says of its call."""

    raw: RawCall
    uid: str
    name: str
    rule: str
    notes: tuple[Note, ...]
    ran: BoundTool | None = None
    """The tool, if it has run."""
    scope: Scope = Scope()


def _assemble(head: _ResultHead, checked: Checked, shown: ShownContent, structured: object, *, error: str | None = None) -> ToolResult:
    """Return the result with the given content.

    Args:
        error: Why the call failed, if it did.
    """
    notes, ran = head.notes, head.ran
    return _result(
        id=head.raw.id,
        uid=head.uid,
        name=head.name,
        status=checked.status,
        content=shown.parts + note_texts(notes, ran) if notes else shown.parts,
        structured=structured,
        error=error,
        failure_class=checked.failure_class,
        code=checked.code,
        message=checked.message,
        end_turn=checked.end_turn,
        image_metadata=checked.image_metadata,
        metadata=_metadata(
            bytes=shown.size_bytes,
            truncated=shown.truncated,
            mime=shown.mime,
            content_key=shown.key,
            blob=shown.blob,
            duration_ms=checked.duration_ms,
            attempts=checked.attempts,
            rule=head.rule,
            cached=checked.cached,
            joined=checked.joined,
            notes=notes,
            command_end=shown.command_end,
            untrusted=ran is not None,
            server_fields=checked.server_fields,
        ),
    )


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
        mime=_shorten(mime, _MIME_BYTES) if type(mime) is str and mime else "text/plain",
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


def _withhold(raw: RawCall, uid: str, checked: Checked, error: BaseException) -> ToolResult:
    """Return a result without any text of the call or of the failure, because the redactor failed and they may contain secrets."""
    log.error("The redactor failed on the result of %s (%s); it is withheld", uid, type(error).__name__)
    ran = checked.attempts > 0 or checked.status == "ok"
    fact = "The call ran, but its result" if ran else "The call did not run, and the reason"
    reason = f"{fact} is withheld: secrets could not be taken out of it. Do not repeat the call; tell the operator."
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


def _shorten(text: str, budget: int) -> str:
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
        return _shorten(f"killed by {signal}", _COMMAND_END_BYTES)
    return f"exit code {code}" if isinstance(code, int) and code != 0 else ""
