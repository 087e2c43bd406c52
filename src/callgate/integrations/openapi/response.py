"""Make the result of a call from the response to its request.

A 2xx response is a success, with its body as JSON data, text, or a content part. Any other response is a failure whose text says what to do
about this status. After a server's error, the effect of a request that must not be repeated is unknown. Pure; the host's credentials have
been removed from the bytes before; here, they are removed from what is decoded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from email.message import Message
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec import Struct

from callgate.calls import Audio, Effect, Image, Resource
from callgate.errors import Retryable
from callgate.models._http_retries import retry_after_s

__all__ = ["MAX_BODY_BYTES", "BodyFault", "RequestFailed", "Response", "make_result"]

MAX_BODY_BYTES = 16 * 1024 * 1024
"""The size at which a body is cut."""
BodyFault = Literal["", "cut", "undecodable"]
"""`cut`: the body was longer than `MAX_BODY_BYTES`. `undecodable`: it is not in its `Content-Encoding`, such as gzip; it is empty here."""
_ERROR_CHARS = 2_000
_TRANSIENT = frozenset({408, 429, 499, 502, 503, 504})
"""Statuses after which the same request may succeed. With all but 429, the server may have acted: a proxy that gives up on a request that
it has passed on answers 408 or 499."""
_FORM = "application/x-www-form-urlencoded"
_TEXT_TYPES = (
    "text/",
    "application/xml",
    "application/javascript",
    "application/x-ndjson",
    "application/yaml",
    "application/x-yaml",
    _FORM,
)
_HINTS: Mapping[int, str] = {
    304: "Nothing has changed since the version that the call names. Go on with what is known of it.",
    400: "The server refused the arguments: correct them as it says.",
    401: "The server did not accept the credentials, which are the host's and no argument. Do not repeat the call; tell the user.",
    403: "This is not permitted here. Do not repeat the call; tell the user.",
    404: "There is nothing with these arguments. Check them, for example by listing what there is.",
    405: "The server does not support this operation. Do not repeat the call; tell the user.",
    409: "The call conflicts with the present state. Read that state, and decide anew.",
    410: "It is gone for good. Go on without it.",
    412: "The call conflicts with the present state. Read that state, and decide anew.",
    413: "The body is too large. Send less.",
    422: "The server refused the arguments: correct them as it says.",
}


class RequestFailed(Retryable):
    """A request whose effect is unknown, or that may succeed later."""


class Response(Struct, frozen=True, kw_only=True):
    """A response whose headers and encoded body are free of the host's credentials."""

    status: int
    headers: Mapping[str, str]
    """With lower-case names."""
    body: bytes
    fault: BodyFault = ""
    redact: Callable[[str], str] = str
    """Removes the host's credentials from decoded text, where a charset or escapes hid them before."""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


def make_result(label: str, uri: str, response: Response, effect: Effect, now_s: float) -> object:
    """Return the value of a successful response, or the failure of another one.

    Args:
        label: The operation, as `GET /pets/{petId}`.
        uri: The path of the request, which identifies a binary body.
        effect: The tool's effect.
        now_s: UTC seconds since 1970, for a `Retry-After` with a date.

    Raises:
        RequestFailed: The same request may succeed later, or it is unknown if it took effect.
    """
    if 200 <= response.status < 300:
        return _value(label, uri, response)
    text = f"{label} answered {_status_text(response.status)}."
    if response.status in _TRANSIENT or (response.status >= 500 and effect == "once"):
        said = _body_to_show(response)
        raise RequestFailed(
            f"{text}{' The server says: ' + str(said) if said else ''}",
            not_started=response.status == 429,
            retry_after_s=retry_after_s(response.headers, now_s),
        )
    return _failure(text, response, effect)


def _status_text(status: int) -> str:
    try:
        return f"{status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)


def _failure(text: str, response: Response, effect: Effect) -> dict[str, Any]:
    if 300 <= response.status < 400 and response.status not in _HINTS:
        hint = "Redirects are not followed. Do not repeat the call; tell the user that the host must correct the server's address."
    elif response.status >= 500:
        doubt = "" if effect == "none" else ", and the call may have taken effect: check the real state"
        hint = f"The server failed{doubt}. The same call will most likely fail again."
    else:
        hint = _HINTS.get(response.status, "The server refused the call: change it as the server says, or go on without it.")
    found: dict[str, Any] = {"success": False, "error": f"{text} {hint}", "status": response.status}
    said = _body_to_show(response)
    return found | {"body": said} if said not in ("", None) else found


def _body_to_show(response: Response) -> object:
    """Return the body of a failure, as JSON data if it is small; binary data is only described."""
    if response.fault == "undecodable":
        return "[a body that cannot be decoded]"
    if not response.body:
        return ""
    text = _text(response)
    if text is None:
        return f"[{len(response.body)} bytes of {response.media_type or 'unknown type'}]"
    if len(text) > _ERROR_CHARS:
        return f"{text[:_ERROR_CHARS]} [cut, {len(text)} characters in all]"
    value = _parse_json(text, response.redact) if _is_json(response.media_type) else None
    return text if value is None else value


def _value(label: str, uri: str, response: Response) -> object:
    if response.fault == "undecodable":
        fact = f"{label} answered {_status_text(response.status)}, but its body cannot be decoded."
        return {"success": False, "error": f"{fact} The call did run; do not repeat it for this reason alone.", "status": response.status}
    if not response.body:
        place = response.headers.get("location")
        return f"{label} answered {_status_text(response.status)} without content.{' Location: ' + place if place else ''}"
    if response.fault == "cut":
        return _cut_value(label, response)
    text = _text(response)
    if text is None:
        return _part(uri, response.media_type or "application/octet-stream", response.body)
    if not _is_json(response.media_type) and response.media_type:
        return text
    value = _parse_json(text, response.redact)
    if isinstance(value, dict) and isinstance(value.get("success"), bool):
        return {"success": True, "data": value}  # as it is, the body's own keys would say how the call ended
    return text if value is None and text.strip() != "null" else value


def _cut_value(label: str, response: Response) -> dict[str, Any]:
    fact = f"{label} answered {_status_text(response.status)} with more than {MAX_BODY_BYTES} bytes, which is the limit."
    beginning = (_text(response) or "")[:_ERROR_CHARS]
    text = f"{fact} The call did run. Ask for less, for example with a filter or a page size."
    return {"success": False, "error": text, "body": beginning}


def _part(uri: str, media_type: str, body: bytes) -> Image | Audio | Resource:
    data = base64.b64encode(body).decode()
    if media_type.startswith("image/"):
        return Image(data=data, mime_type=media_type)
    if media_type.startswith("audio/"):
        return Audio(data=data, mime_type=media_type)
    return Resource(resource={"uri": uri, "mimeType": media_type, "blob": data})


def _is_json(media_type: str) -> bool:
    return media_type in ("application/json", "text/json") or media_type.endswith("+json")


def _parse_json(text: str, redact: Callable[[str], str]) -> Any:
    """Return the JSON data; None if there is none."""
    try:
        value = msgspec.json.decode(text)
        return _redact(value, redact) if "\\u" in text else value
    except (msgspec.DecodeError, RecursionError):
        return None


def _redact(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _redact(item, redact) for key, item in value.items()}
    return [_redact(item, redact) for item in value] if isinstance(value, list) else value


def _text(response: Response) -> str | None:
    """Return the body as text; None if it is binary."""
    text = _decode(response)
    return None if text is None else response.redact(text)


def _decode(response: Response) -> str | None:
    kind = response.media_type
    if kind and not (
        kind.startswith(_TEXT_TYPES) or _is_json(kind) or kind.endswith("+xml") or kind == "application/x-www-form-urlencoded"
    ):
        return None
    header = Message()
    header["Content-Type"] = response.headers.get("content-type", "")
    charset = header.get_content_charset()
    errors: Literal["strict", "replace"] = "replace" if kind else "strict"
    try:
        return response.body.decode(charset or "utf-8", errors).removeprefix("\ufeff")
    except LookupError:
        return response.body.decode("utf-8", "replace")
    except UnicodeDecodeError:
        return None
