"""The environment variables that set limits, and their valid values.

A limit that is given in code is used unchanged. A limit from the environment is raised to its minimum if it is lower. A
value that is not a number is an error, because ignoring it would apply another limit than its author expects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from callgate.errors import UsageError

__all__ = ["silence_from_environment", "timeout_from_environment"]

_LEAST_MS: Final = 10_000
_MOST_MS: Final = 2**31 - 1
"""About three and a half weeks: the longest time that every kind of timer accepts."""
_CALL_MS: Final = 300_000
_SILENCE_MS: Final = 120_000


def timeout_from_environment(environ: Mapping[str, str] = os.environ) -> float:
    """Return the deadline of a whole call in seconds, from `TOOL_EXECUTION_TIMEOUT_MS`.

    Not set: 300 s. Below 10,000: 10 s.

    Raises:
        UsageError: It is not a whole number, or above 2,147,483,647.
    """
    return _seconds(environ, "TOOL_EXECUTION_TIMEOUT_MS", _CALL_MS)


def silence_from_environment(environ: Mapping[str, str] = os.environ) -> float:
    """Return how long a model's stream may be silent, in seconds, from `STREAM_SDK_CALL_TIMEOUT_MS`.

    Not set: 120 s. Below 10,000: 10 s.

    Raises:
        UsageError: It is not a whole number, or above 2,147,483,647.
    """
    return _seconds(environ, "STREAM_SDK_CALL_TIMEOUT_MS", _SILENCE_MS)


def _seconds(environ: Mapping[str, str], name: str, default_ms: int) -> float:
    given = environ.get(name, "").strip()
    if not given:
        return default_ms / 1000
    try:
        value = int(given)
    except ValueError:
        value = _MOST_MS + 1
    if value > _MOST_MS:
        raise UsageError(
            f"{name} is {given[:40]!r}; it must be a whole number of milliseconds up to {_MOST_MS}, of which less than {_LEAST_MS} counts"
            f" as {_LEAST_MS}. Correct it, or unset it for {default_ms}."
        )
    return max(_LEAST_MS, value) / 1000
