"""The place where secrets leave a value before anybody records or shows it.

Sits on the record path. Until a redactor is given, nothing is registered as secret and everything passes unchanged.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from typing import Protocol

__all__ = [
    "SECRET_CHARS",
    "NothingSecret",
    "RedactedLog",
    "Redactor",
    "cut_middle",
    "cut_text",
    "cut_utf8",
    "middle_left_out",
    "redacted_text",
]

_log = logging.getLogger("callgate")
SECRET_CHARS = 8_192
"""What lies this near to a place where a text was cut before it could be redacted is never shown: it may be a piece of a secret."""
_END_CHARS = 32_768
"""Kept of each end of a long text until it can be redacted."""
_LEFT_OUT = re.compile(r" \[\.\.\. (\d+) characters left out \.\.\.\] ")
_WITHHELD = "[withheld]"


class Redactor(Protocol):
    """Removes what must not be stored or shown from encoded JSON."""

    def redact(self, body: bytes) -> bytes:
        """Return `body` without secrets. Valid JSON in, valid JSON out.

        Of a large result, called in a thread that is not the event loop's.
        """
        ...


class NothingSecret:
    """The default: no value is registered, so none is hidden."""

    def redact(self, body: bytes) -> bytes:
        return body


def redacted_text(text: str, redactor: Redactor | None) -> str:
    """One text without secrets; a sentence in its place where the redactor fails, as a secret may be in it."""
    if redactor is None:
        return text
    given = text.encode("utf-8", "backslashreplace").decode()
    try:
        kept = json.loads(redactor.redact(json.dumps(given, ensure_ascii=False).encode()))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plain call: no cancel can come from elsewhere
        return f"[withheld: the redactor failed ({type(error).__name__})]"
    return kept if isinstance(kept, str) else "[withheld: the redactor gave no text]"


def cut_text(text: str, chars: int, redactor: Redactor | None) -> str:
    """The first characters of a text. Redacted before it is cut, since a piece of a secret would not be found any more."""
    if len(text) <= chars:
        return text
    return text[:chars] if redactor is None else _beginning(text, chars, redactor)[:chars]


def cut_utf8(raw: bytes, size: int, redactor: Redactor | None) -> str:
    """The same of a text in UTF-8, measured in bytes."""
    if len(raw) <= size or redactor is None:
        return raw[:size].decode("utf-8", "ignore")
    text = raw[: 4 * (size + _END_CHARS + 2)].decode("utf-8", "ignore")
    return _beginning(text, size, redactor).encode("utf-8", "backslashreplace")[:size].decode("utf-8", "ignore")


def _beginning(text: str, chars: int, redactor: Redactor) -> str:
    """The beginning of a text without secrets, and without what may be a piece of one; no more of it is redacted than is needed."""
    most = chars + _END_CHARS
    if len(text) <= most:
        return redacted_text(text, redactor)
    return redacted_text(text[:most], redactor)[:-SECRET_CHARS] or _WITHHELD


def middle_left_out(text: str, chars: int = 2 * _END_CHARS) -> str:
    """`text` with its middle left out above `chars` characters. By default, so much is kept that `cut_middle` can redact the rest."""
    if len(text) <= chars:
        return text
    half = chars // 2
    return _joined(text[:half], len(text) - 2 * half, text[-half:])


def cut_middle(text: str, chars: int, redactor: Redactor | None) -> str:
    """Both ends of a text of which `middle_left_out` may have left out something already; redacted before it is cut."""
    if len(text) <= chars:
        return text
    begin, end, half = text, text, chars // 2
    left_out = len(text) - 2 * half
    if len(text) > 2 * _END_CHARS:
        found = _LEFT_OUT.search(text, _END_CHARS, _END_CHARS + 1_000)
        begin, end = (text[: found.start()], text[found.end() :]) if found else (text[:_END_CHARS], text[-_END_CHARS:])
        left_out += int(found[1]) - len(found[0]) if found else 0
        begin, end = redacted_text(begin, redactor)[:-SECRET_CHARS], redacted_text(end, redactor)[SECRET_CHARS:]
    elif redactor is not None:
        begin = end = redacted_text(text, redactor)
        left_out = len(begin) - 2 * half
    return _joined(begin[:half], left_out, end[-half:]) if left_out > 0 else begin


def _joined(begin: str, left_out: int, end: str) -> str:
    return f"{begin} [... {left_out} characters left out ...] {end}"


class RedactedLog:
    """The logger `callgate`, as one engine writes to it: a line with its arguments and its traceback goes through the redactor."""

    __slots__ = ("_redactor",)

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor

    def info(self, message: str, *values: object) -> None:
        self._log(logging.INFO, message, values, None)

    def warning(self, message: str, *values: object, error: BaseException | None = None) -> None:
        self._log(logging.WARNING, message, values, error)

    def error(self, message: str, *values: object, error: BaseException | None = None) -> None:
        self._log(logging.ERROR, message, values, error)

    def _log(self, level: int, message: str, values: tuple[object, ...], error: BaseException | None) -> None:
        if not _log.isEnabledFor(level):
            return
        if self._redactor is None:
            _log.log(level, message, *values, exc_info=error, stacklevel=3)
            return
        text = message % values
        if error is not None:
            text += "\n" + "".join(traceback.format_exception(error)).rstrip()
        _log.log(level, "%s", redacted_text(text, self._redactor), stacklevel=3)
