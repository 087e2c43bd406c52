"""Word what is said about a call's own name and arguments so that no piece of a secret is quoted.

Messages and notes quote the first characters of names and values. Where these hold a secret, the stages that word them run once more on a
copy without secrets, and what they say of the copy is told. Must not know the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from callgate._json import canonical, decode, exceeds, plain_bytes
from callgate._redact import Redactor, redacted_text
from callgate.calls import Note, RawCall
from callgate.errors import CallFailed, RecordFailed
from callgate.route import ValidatedCall

__all__ = ["notes_on_value", "quoted_error", "quoted_notes", "quoted_value"]

_WITHHELD = "it quotes what the redactor hides, and is withheld"
Prepare = Callable[[RawCall], ValidatedCall]


def quoted_error(raw: RawCall, error: CallFailed, prepare: Prepare, redactor: Redactor, most_bytes: int) -> CallFailed:
    """The refusal of a call as it may be told.

    Args:
        most_bytes: Larger arguments are refused without a look at them, so that nothing of them is quoted.
    """
    if isinstance(error, RecordFailed) or _is_larger(raw.arguments, most_bytes):
        return error
    copy = _redacted(raw, redactor)
    if copy == raw:
        return error
    try:
        if copy is not None:
            prepare(copy)
    except CallFailed as worded:
        if worded.code == error.code:
            return worded
    return type(error)(f"The call was not run: its name or its arguments are not accepted. Why: {_WITHHELD}.", code=error.code)


def quoted_notes(raw: RawCall, notes: tuple[Note, ...], prepare: Prepare, redactor: Redactor) -> tuple[Note, ...]:
    """The notes on a call as they may be told."""
    copy = _redacted(raw, redactor)
    if copy == raw:
        return notes
    try:
        worded = prepare(copy).notes if copy is not None else ()
    except CallFailed:
        worded = ()
    return _as_worded(notes, worded)


def notes_on_value(
    value: object, notes: tuple[Note, ...], check: Callable[[Any], tuple[Note, ...]], redactor: Redactor | None
) -> tuple[Note, ...]:
    """The notes on a value as they may be told; `check` makes them."""
    if redactor is None or not notes:
        return notes
    try:
        before = plain_bytes(value)
        after = redactor.redact(before)
        return notes if after == before else _as_worded(notes, check(decode(after)))
    except Exception:
        return _as_worded(notes, ())


def _as_worded(notes: tuple[Note, ...], worded: tuple[Note, ...]) -> tuple[Note, ...]:
    same = [note.kind for note in worded] == [note.kind for note in notes]
    return worded if same else tuple(Note(kind=note.kind, text=f"A note: {_WITHHELD}.") for note in notes)


def quoted_value(value: object, told: str, word: Callable[[Any], str], redactor: Redactor | None) -> str:
    """What is wrong with a value, as it may be told.

    Args:
        told: What `word` says of the value.
        word: Says what is wrong; empty where nothing is, and where it is something else that is.
    """
    if redactor is None:
        return told
    try:
        before = plain_bytes(value)
        after = redactor.redact(before)
        return told if after == before else word(decode(after)) or f"why: {_WITHHELD}"
    except Exception:
        return f"why: {_WITHHELD}"


def _redacted(raw: RawCall, redactor: Redactor) -> RawCall | None:
    """The call without secrets; None where the redactor fails, or leaves no arguments."""
    given = raw.arguments
    try:
        if isinstance(given, Mapping):
            before = canonical(given)
            after = redactor.redact(before)
            arguments: object = given if after == before else decode(after)
        else:
            arguments = redacted_text(given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given), redactor)
            arguments = given if isinstance(given, bytes) and arguments == given.decode("utf-8", "replace") else arguments
    except Exception:
        return None
    return replace(raw, name=redacted_text(raw.name, redactor), arguments=arguments)


def _is_larger(arguments: object, most_bytes: int) -> bool:
    if isinstance(arguments, Mapping):
        return exceeds(arguments, most_bytes)
    return isinstance(arguments, (str, bytes)) and len(arguments) > most_bytes
