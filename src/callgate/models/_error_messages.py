"""Error messages for HTTP responses that hold no model answer: refused requests, and bodies that no provider API sends.

Providers report errors in a dozen shapes; a body of any other shape is shown as it is, shortened. Credentials are removed. Pure.
"""

from __future__ import annotations

import re

import msgspec

from callgate.models._credential_redaction import NO_SECRETS, SecretRedactor, redact_url
from callgate.models.wire.server_errors import ServerError

__all__ = ["describe_error_response", "is_html", "is_miswritten_call", "unexpected_body_message"]

_MESSAGE_CHARS = 2_000
_HINTS = {
    401: "Check the key{key}.",
    403: "Check what the key{key} may do.",
    404: "Check the model's name and the base URL.",
    413: "Send less.",
    429: "Wait, send less at a time, or ask the provider for a higher limit.",
}
_BODY_STARTS = (b"data", b"event", b"id", b"retry", b":", b"{", b"[", b"\0")
"""The bodies of all provider APIs begin with one of these."""
_VERSION = re.compile(r"/v\d+[^/]*\Z")
_SAMPLE_CHARS = 60
_TAG = re.compile(r"<(style|script)\b.*?</\1>|<[^>]{0,500}>", re.DOTALL | re.IGNORECASE)
_MESSAGES = ("message", "Message", "detail", "error", "msg", "error_msg", "title")
_MISWRITTEN_CALL_CODES = frozenset({"tool_use_failed"})
"""The model wrote a call that the provider could not parse; a repeated request may succeed."""


def describe_error_response(
    provider: str, status: int, body: bytes, *, key_name: str = "", location: str = "", redactor: SecretRedactor = NO_SECRETS
) -> ServerError:
    """Return the code and the message for a refused request.

    Args:
        provider: The provider's name.
        status: The HTTP status.
        body: The response body, perhaps truncated.
        key_name: The environment variable of the key, named in the hint.
        location: The target of a redirect.
        redactor: Removes secrets.
    """
    code, message = _parse_error_body(body, redactor)
    if 300 <= status < 400:
        where = f" to {redactor.redact_and_truncate(redact_url(location), 300)}" if location else ""
        message = f"a redirect{where}, which is not followed because it would receive the key. Set base_url to its target"
    hint = _HINTS.get(status, "").format(key=f" in {key_name}" if key_name else "")
    text = f"{provider} answered {status}: {redactor.redact_and_truncate(message, _MESSAGE_CHARS).rstrip('. ') or 'an empty body'}. {hint}"
    return ServerError(redactor.redact(code) or f"http_{status}", text.rstrip())


def is_miswritten_call(code: str) -> bool:
    """Whether this error code means that the model wrote an unreadable call.

    The same request may then succeed later, whatever the status says.
    """
    return code in _MISWRITTEN_CALL_CODES


def is_html(first: bytes) -> bool:
    """Whether a body that begins with these bytes is an HTML page: no API's answer begins with `<`."""
    return first.startswith(b"<")


def unexpected_body_message(
    provider: str, base_url: str, api: str, status: int, content_type: str, first: bytes, redactor: SecretRedactor = NO_SECRETS
) -> str:
    """Return the message for a successful response that is not an answer of the API; empty if it may be one.

    Args:
        provider: The provider's name.
        base_url: The URL of the request, without secrets.
        api: The API that was expected.
        status: The HTTP status.
        content_type: The response's content type.
        first: The beginning of the body, without white space.
        redactor: Removes secrets.
    """
    if is_html(first):
        description = "an HTML page"
    elif not first:
        description = "an empty body"
    elif first.startswith(_BODY_STARTS):
        return ""
    else:
        description = f"unexpected text, {redactor.redact_and_truncate(first.decode('utf-8', 'replace'), _SAMPLE_CHARS)!r}"
    shown_type = redactor.redact_and_truncate(content_type, 80) or "no content type"
    version = " It should end in '/v1'." if api.startswith("openai.") and not _VERSION.search(base_url) else ""
    return (
        f"{provider} at {base_url} answered {status} ({shown_type}) with {description} instead of an answer of its API."
        f" Check base_url.{version} If it is right, look for a proxy or a login page in between."
    )


def _parse_error_body(body: bytes, redactor: SecretRedactor) -> ServerError:
    """Return the error in a body; its code is empty if there is none."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = redactor.redact_and_truncate(body.decode("utf-8", "replace"), 4 * _MESSAGE_CHARS)
        return ServerError("", " ".join(_TAG.sub(" ", text).split()))
    value = value[0] if isinstance(value, list) and value else value
    error = (value.get("error") or _first_error(value.get("errors")) or value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return ServerError("", error if isinstance(error, str) else body.decode("utf-8", "replace"))
    code = next((word for key in ("code", "type", "status") if isinstance(word := error.get(key), str) and word), "")
    message = next((word for key in _MESSAGES if (word := error.get(key))), None)
    whole = body.decode("utf-8", "replace")
    return ServerError(code, _with_upstream_message(message, error.get("metadata")) if isinstance(message, str) else whole)


def _first_error(errors: object) -> object:
    return errors[0] if isinstance(errors, list) and errors else None


def _with_upstream_message(message: str, metadata: object) -> str:
    """Return a gateway's message with the message of the provider behind it appended."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return f"{message}: {raw}" if isinstance(raw, str) and raw else message
