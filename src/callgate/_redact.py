"""The place where secrets leave a value before anybody records or shows it.

Sits on the record path. Until a redactor is given, nothing is registered as secret and everything passes unchanged.
"""

from __future__ import annotations

import json
import logging
import traceback
from typing import Protocol

__all__ = ["NothingSecret", "RedactedLog", "Redactor", "redacted_text"]

_log = logging.getLogger("callgate")


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
