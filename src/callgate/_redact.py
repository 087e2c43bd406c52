"""The place where secrets leave a value before anybody records or shows it.

Sits on the record path. Until a redactor is given, nothing is registered as secret and everything passes unchanged.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["NothingSecret", "Redactor"]


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
