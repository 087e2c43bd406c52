"""Parse errors that servers report inside an answer: in a body with status 200, or in a frame of a stream.

The common forms; forms of a single API are parsed by its own decoder. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from callgate.models.wire.json_fields import as_object, as_text

__all__ = ["MessageTooLarge", "ServerError", "error_from_body", "find_error", "is_retryable_code", "parse_error"]


class ServerError(NamedTuple):
    """An error in the answer of a server."""

    code: str
    message: str


class MessageTooLarge(Exception):
    """The message exceeds a bound: it ends with a fault, and the rest is not read."""

    def __init__(self, message: str, code: str = "too_large") -> None:
        super().__init__(message)
        self.code = code


_RETRYABLE_CODES = frozenset(
    {
        *("408", "409", "425", "429", "500", "502", "503", "504", "529"),
        *("server_error", "internal_error", "internal_server_error", "api_error", "timeout", "timeout_error", "vector_store_timeout"),
        *("overloaded", "overloaded_error", "engine_overloaded", "server_is_overloaded", "slow_down"),
        *("unavailable", "service_unavailable", "service_unavailable_error", "internal", "deadline_exceeded", "aborted"),
        *("rate_limit", "rate_limit_error", "rate_limit_exceeded", "resource_exhausted"),
    }
)
"""Codes of errors that may be gone a moment later."""
_SUCCESS_CODES = frozenset({"", "0", "200", "ok", "success"})
"""Codes for success, of servers that send a code with every frame."""
_MESSAGE_KEYS = ("message", "msg", "error_msg", "detail", "status_msg")
_CODE_KEYS = ("code", "type", "status", "error_code", "status_code")


def find_error(value: Mapping[str, object], event: str = "") -> ServerError | None:
    """Return the error that a frame or a body reports; None if it reports none."""
    error = value.get("error")
    if error or event == "error":
        return parse_error(error or value)
    base = as_object(value.get("base_resp"))
    if base.get("status_code"):
        return parse_error(base)
    if value.get("object") == "error" or any(value.get(key) for key in ("detail", "error_code", "error_msg")):
        return parse_error(value)
    code = as_text(value.get("code")).lower()
    return parse_error(value) if code not in _SUCCESS_CODES and not value.keys().isdisjoint(_MESSAGE_KEYS) else None


def error_from_body(value: Mapping[str, object], default_message: str) -> ServerError:
    """Return the error of a body that holds no answer; `default_message` if it reports none."""
    has_message = any(isinstance(value.get(key), str) for key in _MESSAGE_KEYS)
    return find_error(value) or (parse_error(value) if has_message else ServerError("bad_frame", default_message))


def parse_error(error: object, codes: tuple[str, ...] = _CODE_KEYS) -> ServerError:
    """Return the code and the message of an error.

    Args:
        error: An object, a list whose first item counts, or the message itself.
        codes: The keys that may hold the code, the best first.
    """
    if isinstance(error, list) and error:
        error = error[0]
    if not isinstance(error, dict):
        return ServerError("error", as_text(error))
    code = next((error[key] for key in codes if error.get(key)), "error")
    return ServerError(as_text(code), as_text(next((error[key] for key in _MESSAGE_KEYS if error.get(key)), error)))


def is_retryable_code(code: str) -> bool:
    """Whether an error with this code may be gone a moment later."""
    return code.lower() in _RETRYABLE_CODES
