"""Make one JSON object of what the model sent as arguments.

First, so that no later stage meets text. What was cut off is refused here, whatever it looks like: a call that is repaired into
something executable does what nobody asked for. Malformed but complete text is repaired only where the host asked for that, and the
repair is recorded. Large arguments are parsed off the event loop, by whoever calls `parse`. Must not know which tool is meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate._abort_signals import FAILURES
from callgate._json import exceeds, read_object, strict_object
from callgate._json.repair import repair_text
from callgate._limits import Limits
from callgate._runners.offload import LARGE_BYTES
from callgate.calls import Note, RawCall
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated, CallAborted
from callgate.route import ParsedCall

__all__ = ["check_name", "has_large_arguments", "parse", "parsed_or_error"]

_EMPTY = Note(kind="empty", text="The arguments were empty and were taken as {}.")
_NULL = Note(kind="empty", text="The arguments were null and were taken as {}.")
_LIFTED = Note(kind="lifted", text="The arguments were empty; what stood beside them, at the top level of the call, was taken for them.")


def check_name(raw: RawCall) -> None:
    """Refuse a call without a name; the check that comes before all others.

    Raises:
        CallAborted: The call has no name, so it is none.
    """
    if not isinstance(raw.name, str) or not raw.name.strip():
        raise CallAborted("error", "The model's call has no name, so it is no call. Nothing was run.")


def has_large_arguments(raw: RawCall) -> bool:
    """Whether parsing takes so long that it should not hold the event loop; a mapping that is no dict has an unknown size."""
    arguments = raw.arguments
    if isinstance(arguments, (str, bytes)):
        return len(arguments) > LARGE_BYTES
    return isinstance(arguments, Mapping) and (type(arguments) is not dict or exceeds(arguments, LARGE_BYTES))


def parse(raw: RawCall, uid: str, limits: Limits, *, repair: bool) -> ParsedCall:
    """Read `raw`.

    Args:
        raw: The call as it came; nothing in it is trusted.
        uid: Ours.
        limits: Of the arguments' size, depth and keys, and of what is repaired at all.
        repair: Whether complete but malformed JSON is put right.

    Raises:
        CallAborted: The call has no name, so it is none.
        ArgumentsTruncated: The call was cut off.
        ArgumentsMalformed: The arguments are no JSON object; `code` says why.
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
        arguments, whole = read_object(raw.arguments, limits)
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        if not repair:
            raise _told_apart(error) from None
        arguments, note = _repaired(raw, limits, error)
        return ParsedCall(uid=uid, raw=raw, arguments=arguments, notes=(note,))
    if not arguments:
        return _empty(raw, uid, limits)
    return ParsedCall(uid=uid, raw=raw, arguments=arguments, notes=(_LIFTED,) if raw.lifted else (), whole_floats=whole)


def parsed_or_error(raw: RawCall, uid: str, limits: Limits, *, repair: bool) -> ParsedCall | BaseException:
    """What `parse` returns or raises; for a thread, whose errors belong to the call."""
    try:
        return parse(raw, uid, limits, repair=repair)
    except FAILURES as error:
        return error


def _told_apart(error: ArgumentsMalformed | ArgumentsTruncated) -> ArgumentsMalformed | ArgumentsTruncated:
    """Text that ends too early in a message that did not: cut off all the same, but by whoever wrote it."""
    return ArgumentsTruncated(str(error), code="invalid_json") if isinstance(error, ArgumentsTruncated) else error


def _repaired(raw: RawCall, limits: Limits, error: ArgumentsMalformed | ArgumentsTruncated) -> tuple[dict[str, object], Note]:
    """The object that malformed text means. Text that ends too early for the strict reader may still be whole: a quote too many."""
    text = raw.arguments if isinstance(raw.arguments, str) else ""
    if error.code not in ("invalid_json", "truncated"):
        raise error
    certain, value = repair_text(text, limits)
    if not certain or not isinstance(value, dict):
        raise error
    return value, Note(kind="json_repaired", text=f"The arguments were malformed JSON and were repaired: {_fact(error)}.")


def _fact(error: Exception) -> str:
    """What was wrong, without the advice that follows it."""
    return str(error).partition(". ")[0][:300].rstrip(".")


def _empty(raw: RawCall, uid: str, limits: Limits) -> ParsedCall:
    if raw.beside:
        return ParsedCall(uid=uid, raw=raw, arguments=strict_object(raw.beside, limits), notes=(_LIFTED,))
    return ParsedCall(uid=uid, raw=raw, arguments={}, notes=_emptiness(raw.arguments))


def _emptiness(arguments: object) -> tuple[Note, ...]:
    text = arguments.decode() if isinstance(arguments, bytes) else arguments
    if not isinstance(text, str) or "{" in text:
        return ()
    return (_NULL,) if "null" in text else (_EMPTY,)
