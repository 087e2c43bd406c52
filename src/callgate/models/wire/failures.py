"""What a server says that it failed with, in the forms that go around: an answer of status 200, a frame in the middle of a stream.

Whoever reads an API asks here first; forms that only one API has are its own room's. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.wire.fields import object_of, text_of

__all__ = ["Failure", "MessageTooLarge", "failure_in", "failure_of", "passes", "told"]

Failure = tuple[str, str]
"""Code and message, in the server's words."""


class MessageTooLarge(Exception):
    """The message has more of something than a message may have: it ends with a fault, and nothing more of it is read."""

    def __init__(self, message: str, code: str = "too_large") -> None:
        super().__init__(message)
        self.code = code


_PASSING = frozenset(
    {
        *("408", "409", "425", "429", "500", "502", "503", "504", "529"),
        *("server_error", "internal_error", "internal_server_error", "api_error", "timeout", "timeout_error", "vector_store_timeout"),
        *("overloaded", "overloaded_error", "engine_overloaded", "server_is_overloaded", "slow_down"),
        *("unavailable", "service_unavailable", "service_unavailable_error", "internal", "deadline_exceeded", "aborted"),
        *("rate_limit", "rate_limit_error", "rate_limit_exceeded", "resource_exhausted"),
    }
)
"""What servers call a failure of theirs that may be gone a moment later."""
_WELL = frozenset({"", "0", "200", "ok", "success"})
"""What servers that give a code with every frame call none."""
_MESSAGES = ("message", "msg", "error_msg", "detail", "status_msg")
_CODES = ("code", "type", "status", "error_code", "status_code")


def failure_of(value: Mapping[str, object], event: str = "") -> Failure | None:
    """The error that a frame or a body is; None where it is none."""
    error = value.get("error")
    if error or event == "error":
        return told(error or value)
    base = object_of(value.get("base_resp"))
    if base.get("status_code"):
        return told(base)
    if value.get("object") == "error" or any(value.get(key) for key in ("detail", "error_code", "error_msg")):
        return told(value)
    code = text_of(value.get("code")).lower()
    return told(value) if code not in _WELL and not value.keys().isdisjoint(_MESSAGES) else None


def failure_in(value: Mapping[str, object], otherwise: str) -> Failure:
    """What a body says that is no answer; `otherwise`, where it says nothing."""
    words = any(isinstance(value.get(key), str) for key in _MESSAGES)
    return failure_of(value) or (told(value) if words else ("bad_frame", otherwise))


def told(error: object, codes: tuple[str, ...] = _CODES) -> Failure:
    """Code and message of what is an error.

    Args:
        error: An object, a list of which the first counts, or what is itself the message.
        codes: Where the code stands, the best place first.
    """
    if isinstance(error, list) and error:
        error = error[0]
    if not isinstance(error, dict):
        return "error", text_of(error)
    code = next((error[key] for key in codes if error.get(key)), "error")
    return text_of(code), text_of(next((error[key] for key in _MESSAGES if error.get(key)), error))


def passes(code: str) -> bool:
    """Whether a failure of this code may be gone a moment later."""
    return code.lower() in _PASSING
