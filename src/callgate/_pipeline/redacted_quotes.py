"""Remove secrets from the errors and notes about a value that quote it.

Errors and notes quote the beginnings of names and values, and must not quote a part of a secret. If a value contains secrets, the function
that writes these texts runs once more on a copy without secrets, and the texts about the copy are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from callgate._json import decode, exceeds, plain_bytes
from callgate._secret_redaction import Redactor, redacted_text
from callgate.calls import Note, RawCall
from callgate.errors import CallFailed, RecordFailed
from callgate.stage_types import ValidatedCall

__all__ = ["redact_error", "redact_notes", "redact_notes_on", "redact_problem"]

_WITHHELD = "it quotes what the redactor hides, and is withheld"
Prepare = Callable[[RawCall], ValidatedCall]


def redact_error(raw: RawCall, error: CallFailed, prepare: Prepare, redactor: Redactor, most_bytes: int) -> CallFailed:
    """Return the error of a refused call without secrets.

    Args:
        most_bytes: Larger arguments are refused unread, so that the error quotes nothing of them.
    """
    if isinstance(error, RecordFailed) or _is_larger(raw.arguments, most_bytes):
        return error
    copy = _redact(raw, redactor)
    if copy == raw:
        return error
    try:
        if copy is not None:
            prepare(copy)
    except CallFailed as worded:
        if worded.code == error.code:
            return worded
    return type(error)(f"The call was not run: its name or its arguments are not accepted. Why: {_WITHHELD}.", code=error.code)


def redact_notes(raw: RawCall, notes: tuple[Note, ...], prepare: Prepare, redactor: Redactor) -> tuple[Note, ...]:
    """Return the notes on a call without secrets."""
    copy = _redact(raw, redactor)
    if copy == raw:
        return notes
    try:
        worded = prepare(copy).notes if copy is not None else ()
    except CallFailed:
        worded = ()
    return _withhold_notes(notes, worded)


def redact_notes_on(
    value: object, notes: tuple[Note, ...], check: Callable[[Any], tuple[Note, ...]], redactor: Redactor | None
) -> tuple[Note, ...]:
    """Return the notes on a value without secrets. `check` returns the notes on a copy of the value."""
    if redactor is None or not notes:
        return notes
    try:
        before = plain_bytes(value)
        after = redactor.redact(before)
        return notes if after == before else _withhold_notes(notes, check(decode(after)))
    except Exception:
        return _withhold_notes(notes, ())


def _withhold_notes(notes: tuple[Note, ...], worded: tuple[Note, ...]) -> tuple[Note, ...]:
    same = [note.kind for note in worded] == [note.kind for note in notes]
    return worded if same else tuple(Note(kind=note.kind, text=f"A note: {_WITHHELD}.") for note in notes)


def redact_problem(value: object, text: str, word: Callable[[Any], str], redactor: Redactor | None) -> str:
    """Return the text of the error of a value, without secrets.

    Args:
        text: The text that `word` returned for the value.
        word: Returns the text of the error of a value; empty if there is none, or if it is another error.
    """
    if redactor is None:
        return text
    try:
        before = plain_bytes(value)
        after = redactor.redact(before)
        return text if after == before else word(decode(after)) or f"why: {_WITHHELD}"
    except Exception:
        return f"why: {_WITHHELD}"


def _redact(raw: RawCall, redactor: Redactor) -> RawCall | None:
    """Return the call without secrets; None if the redactor fails or leaves no arguments."""
    given = raw.arguments
    try:
        if isinstance(given, Mapping):
            before = plain_bytes(given)
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
