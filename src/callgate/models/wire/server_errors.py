"""What a server says that it failed with, in the forms that go around: an answer of status 200, a frame in the middle of a stream.

Whoever reads an API asks here first; forms that only one API has are its own room's. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.wire.json_fields import as_object, as_text

__all__ = ["MessageTooLarge", "ServerError", "error_from_body", "find_error", "is_retryable_code", "parse_error"]

ServerError = tuple[str, str]
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


def find_error(value: Mapping[str, object], event: str = "") -> ServerError | None:
    """The error that a frame or a body is; None where it is none."""
    error = value.get("error")
    if error or event == "error":
        return parse_error(error or value)
    base = as_object(value.get("base_resp"))
    if base.get("status_code"):
        return parse_error(base)
    if value.get("object") == "error" or any(value.get(key) for key in ("detail", "error_code", "error_msg")):
        return parse_error(value)
    code = as_text(value.get("code")).lower()
    return parse_error(value) if code not in _WELL and not value.keys().isdisjoint(_MESSAGES) else None


def error_from_body(value: Mapping[str, object], otherwise: str) -> ServerError:
    """What a body says that is no answer; `otherwise`, where it says nothing."""
    words = any(isinstance(value.get(key), str) for key in _MESSAGES)
    return find_error(value) or (parse_error(value) if words else ("bad_frame", otherwise))


def parse_error(error: object, codes: tuple[str, ...] = _CODES) -> ServerError:
    """Code and message of what is an error.

    Args:
        error: An object, a list of which the first counts, or what is itself the message.
        codes: Where the code stands, the best place first.
    """
    if isinstance(error, list) and error:
        error = error[0]
    if not isinstance(error, dict):
        return "error", as_text(error)
    code = next((error[key] for key in codes if error.get(key)), "error")
    return as_text(code), as_text(next((error[key] for key in _MESSAGES if error.get(key)), error))


def is_retryable_code(code: str) -> bool:
    """Whether a failure of this code may be gone a moment later."""
    return code.lower() in _PASSING
