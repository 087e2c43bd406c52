"""Parse the arguments that the model sent into one JSON object.

The first stage, so that all later stages work on an object instead of text. Truncated arguments are refused even if they could be
completed, because a repaired call may do something that the model did not request. Malformed but complete text is repaired only if the host
enabled that, and the repair is recorded. The caller of `parse` decides whether to call it in a thread, for large arguments. Must not know
which tool is meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate._abort_signals import FAILURES
from callgate._engine_limits import Limits
from callgate._json import exceeds, read_object, strict_object, strict_value
from callgate._runners.offload_to_threads import LARGE_BYTES
from callgate.argument_checks import repair_json, repair_note
from callgate.calls import Note, RawCall
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated, CallAborted
from callgate.stage_types import ParsedCall

__all__ = ["check_name", "has_large_arguments", "parse", "try_parse"]

Notes = tuple[Note, ...]

_EMPTY = Note(kind="empty", text="The arguments were empty and were taken as {}.")
_NULL = Note(kind="empty", text="The arguments were null and were taken as {}.")
_LIFTED = Note(kind="lifted", text="The arguments were empty; what stood beside them, at the top level of the call, was taken for them.")


def check_name(raw: RawCall) -> None:
    """Refuse a call without a name. This check precedes all others.

    Raises:
        CallAborted: The call has no name, so it does not count as a call.
    """
    if not isinstance(raw.name, str) or not raw.name.strip():
        raise CallAborted(
            "error", "The model's call has no name. Nothing was run. Ask the model again, or name a tool if your program made the call."
        )


def has_large_arguments(arguments: object) -> bool:
    """Return whether parsing takes so long that it would block the event loop. True for mappings other than dicts: their size is
    unknown."""
    if isinstance(arguments, (str, bytes)):
        return len(arguments) > LARGE_BYTES
    return isinstance(arguments, Mapping) and (type(arguments) is not dict or exceeds(arguments, LARGE_BYTES))


def parse(
    raw: RawCall, uid: str, limits: Limits, *, repair: bool, arguments: str | bytes | Mapping[str, object] | None = None
) -> ParsedCall:
    """Parse the call `raw`.

    Args:
        raw: The call as it was received. Untrusted.
        uid: The call's id in the engine.
        limits: The limits of the arguments' size, depth and keys, of the call id, and of the text to repair.
        repair: Whether to repair complete but malformed JSON.
        arguments: Those of `raw` in another form. None: as they were received.

    Raises:
        CallAborted: The call has no name, so it does not count as a call.
        ArgumentsTruncated: The call was truncated.
        ArgumentsMalformed: The arguments are not a JSON object; `code` says why.
    """
    if not (type(raw.name) is str and raw.name and not raw.name.isspace()):
        check_name(raw)
    if len(raw.id) > limits.call_id_chars:
        raise ArgumentsMalformed(
            f"The call's id has more than {limits.call_id_chars} characters, the limit. Nothing was run. Send it with a shorter id.",
            code="bad_call_id",
        )
    if raw.closed not in ("sealed", "finished"):
        raise ArgumentsTruncated("The message ended before this call was complete. Nothing was run. Send the whole call again.")
    try:
        read, whole = read_object(raw.arguments if arguments is None else arguments, limits)
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        if not repair:
            raise _correct_code(error) from None
        repaired, notes = _repair(raw, limits, error)
        return ParsedCall(uid=uid, raw=raw, arguments=repaired, notes=notes)
    if not read:
        return _empty(raw, uid, limits)
    return ParsedCall(uid=uid, raw=raw, arguments=read, notes=(_LIFTED,) if raw.lifted else (), whole_floats=whole)


def try_parse(raw: RawCall, uid: str, limits: Limits, *, repair: bool) -> ParsedCall | BaseException:
    """Return what `parse` returns or raises. For use in a thread, because an error belongs to its call."""
    try:
        return parse(raw, uid, limits, repair=repair)
    except FAILURES as error:
        return error


def _correct_code(error: ArgumentsMalformed | ArgumentsTruncated) -> ArgumentsMalformed | ArgumentsTruncated:
    """Return the error, with another code if the text is truncated although the message is complete.

    In this case, the model itself wrote the text so.
    """
    return ArgumentsTruncated(str(error), code="invalid_json") if isinstance(error, ArgumentsTruncated) else error


def _repair(raw: RawCall, limits: Limits, error: ArgumentsMalformed | ArgumentsTruncated) -> tuple[dict[str, object], Notes]:
    """Return the object that malformed text means, or the one inside a JSON string.

    Text that seems truncated may be complete, for example with an additional quote.
    """
    try:
        found, notes = _read_malformed(raw.arguments if isinstance(raw.arguments, str) else "", limits, error)
    except (ArgumentsMalformed, ArgumentsTruncated):
        found, notes = None, ()
    if not isinstance(found, dict):
        raise _correct_code(error) from None
    return found, notes


def _read_malformed(text: str, limits: Limits, error: ArgumentsMalformed | ArgumentsTruncated) -> tuple[object, Notes]:
    if error.code == "not_object":
        inner = strict_value(text, limits)
        return (strict_value(inner, limits) if isinstance(inner, str) else None), (repair_note(error),)
    if not text or error.code not in ("invalid_json", "truncated"):
        return None, ()
    repaired = repair_json(text, limits=limits)
    return repaired.value, repaired.notes


def _empty(raw: RawCall, uid: str, limits: Limits) -> ParsedCall:
    if raw.beside:
        return ParsedCall(uid=uid, raw=raw, arguments=strict_object(raw.beside, limits), notes=(_LIFTED,))
    return ParsedCall(uid=uid, raw=raw, arguments={}, notes=_emptiness(raw.arguments))


def _emptiness(arguments: object) -> tuple[Note, ...]:
    text = arguments.decode() if isinstance(arguments, bytes) else arguments
    if not isinstance(text, str) or "{" in text:
        return ()
    return (_NULL,) if "null" in text else (_EMPTY,)
