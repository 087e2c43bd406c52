"""Remove secrets from a value before it is recorded or shown.

Without a redactor, no value counts as secret and everything passes unchanged.
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
"""The number of characters next to a cut that are never shown if the text was cut before it was redacted, because they
may be a part of a secret.
"""
_END_CHARS = 32_768
"""How much of each end of a long text is kept until it can be redacted."""
_LEFT_OUT = re.compile(r" \[\.\.\. (\d+) characters left out \.\.\.\] ")
_WITHHELD = "[withheld]"


class Redactor(Protocol):
    """Removes from encoded JSON what must not be stored or shown."""

    def redact(self, body: bytes) -> bytes:
        """Return `body` without secrets. Valid JSON in, valid JSON out.

        For a large result, it is called in a thread other than the event loop's.
        """
        ...


class NothingSecret:
    """The default redactor: changes nothing."""

    def redact(self, body: bytes) -> bytes:
        return body


def redacted_text(text: str, redactor: Redactor | None) -> str:
    """Return `text` without secrets; if the redactor fails, return a notice instead, because the text may contain one."""
    if redactor is None:
        return text
    given = text.encode("utf-8", "backslashreplace").decode()
    try:
        kept = json.loads(redactor.redact(json.dumps(given, ensure_ascii=False).encode()))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a synchronous call: it cannot be a cancellation of this task
        return f"[withheld: the redactor failed ({type(error).__name__})]"
    return kept if isinstance(kept, str) else "[withheld: the redactor gave no text]"


def cut_text(text: str, chars: int, redactor: Redactor | None) -> str:
    """Return the first `chars` characters of `text`. Redacts before it cuts, because a part of a secret would not be recognised."""
    if len(text) <= chars:
        return text
    return text[:chars] if redactor is None else _beginning(text, chars, redactor)[:chars]


def cut_utf8(raw: bytes, size: int, redactor: Redactor | None) -> str:
    """Return the first `size` bytes of a text in UTF-8. Redacts before it cuts, as `cut_text` does."""
    if len(raw) <= size or redactor is None:
        return raw[:size].decode("utf-8", "ignore")
    text = raw[: 4 * (size + _END_CHARS + 2)].decode("utf-8", "ignore")
    return _beginning(text, size, redactor).encode("utf-8", "backslashreplace")[:size].decode("utf-8", "ignore")


def _beginning(text: str, chars: int, redactor: Redactor) -> str:
    """Return the redacted beginning of `text`, without an end that may be a part of a secret.

    Redacts no more than is needed.
    """
    most = chars + _END_CHARS
    if len(text) <= most:
        return redacted_text(text, redactor)
    return redacted_text(text[:most], redactor)[:-SECRET_CHARS] or _WITHHELD


def middle_left_out(text: str, chars: int = 2 * _END_CHARS) -> str:
    """Return `text` with its middle left out if it is longer than `chars`. The default keeps enough for `cut_middle` to redact."""
    if len(text) <= chars:
        return text
    half = chars // 2
    return _join(text[:half], len(text) - 2 * half, text[-half:])


def cut_middle(text: str, chars: int, redactor: Redactor | None) -> str:
    """Return both ends of `text`, which `middle_left_out` may have shortened already; redacts before it cuts."""
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
    return _join(begin[:half], left_out, end[-half:]) if left_out > 0 else begin


def _join(begin: str, left_out: int, end: str) -> str:
    return f"{begin} [... {left_out} characters left out ...] {end}"


class RedactedLog:
    """The logger `callgate`, or one below it, for one engine: redacts each message with its arguments and its traceback."""

    __slots__ = ("_log_to", "_redactor")

    def __init__(self, redactor: Redactor | None, log_to: logging.Logger = _log) -> None:
        self._redactor = redactor
        self._log_to = log_to

    def debug(self, message: str, *values: object, error: BaseException | None = None) -> None:
        self._log(logging.DEBUG, message, values, error)

    def info(self, message: str, *values: object) -> None:
        self._log(logging.INFO, message, values, None)

    def warning(self, message: str, *values: object, error: BaseException | None = None) -> None:
        self._log(logging.WARNING, message, values, error)

    def error(self, message: str, *values: object, error: BaseException | None = None) -> None:
        self._log(logging.ERROR, message, values, error)

    def _log(self, level: int, message: str, values: tuple[object, ...], error: BaseException | None) -> None:
        if not self._log_to.isEnabledFor(level):
            return
        if self._redactor is None:
            self._log_to.log(level, message, *values, exc_info=error, stacklevel=3)
            return
        text = message % values
        if error is not None:
            text += "\n" + "".join(traceback.format_exception(error)).rstrip()
        self._log_to.log(level, "%s", redacted_text(text, self._redactor), stacklevel=3)
