"""What a provider says where it gives no message, fit to be shown: a refusal, without credentials, or no answer of an API at all.

Providers write errors in a dozen shapes; what none of them fits is shown as it came, and shortened. Pure.
"""

from __future__ import annotations

import re

import msgspec

from callgate.models._secrets import NO_SECRETS, SecretRedactor, redact_url

__all__ = ["describe_error_response", "is_html", "is_miswritten_call", "unexpected_body_message"]

_SHOWN = 2_000
_HINTS = {
    401: "Check the key{key}.",
    403: "Check what the key{key} may do.",
    404: "Check the model's name and the base URL.",
    413: "Send less.",
    429: "Wait, send less at a time, or ask the provider for a higher limit.",
}
_ANSWERS = (b"data", b"event", b"id", b"retry", b":", b"{", b"[", b"\0")
"""How the bodies of the APIs begin."""
_VERSION = re.compile(r"/v\d+[^/]*\Z")
_GLIMPSE = 60
_TAG = re.compile(r"<(style|script)\b.*?</\1>|<[^>]{0,500}>", re.DOTALL | re.IGNORECASE)
_MESSAGES = ("message", "Message", "detail", "error", "msg", "error_msg", "title")
_MISWRITTEN = frozenset({"tool_use_failed"})
"""The model wrote a call that the provider could not read; asked again, it may write a better one."""


def describe_error_response(
    provider: str, status: int, body: bytes, *, key_name: str = "", location: str = "", hidden: SecretRedactor = NO_SECRETS
) -> tuple[str, str]:
    """Code and message of a refused request.

    Args:
        provider: Who refused.
        status: The HTTP status.
        body: What came with it, perhaps cut.
        key_name: The environment variable of the key, for the next step.
        location: Where a redirect points.
        hidden: What must not be shown.
    """
    code, said = _said(body, hidden)
    if 300 <= status < 400:
        where = f" to {hidden.cut(redact_url(location), 300)}" if location else ""
        said = f"a redirect{where}, which is not followed: the key would go along. Set base_url to the address it ends at"
    hint = _HINTS.get(status, "").format(key=f" in {key_name}" if key_name else "")
    text = f"{provider} answered {status}: {hidden.cut(said, _SHOWN).rstrip('. ') or 'without a word'}. {hint}"
    return hidden.redact(code) or f"http_{status}", text.rstrip()


def is_miswritten_call(code: str) -> bool:
    """Whether a request that was refused so is worth another try, although the status speaks against it."""
    return code in _MISWRITTEN


def is_html(first: bytes) -> bool:
    """Whether a body that begins so is a page for people: no API's answer begins with a tag."""
    return first.startswith(b"<")


def unexpected_body_message(
    provider: str, base_url: str, api: str, status: int, content_type: str, first: bytes, hidden: SecretRedactor = NO_SECRETS
) -> str:
    """What to say of a successful answer that is none of the API; empty where it may be one.

    Args:
        base_url: Where it was asked, without what must not be shown.
        first: How the body begins, without white space.
        hidden: What must not be shown.
    """
    if is_html(first):
        what = "a page for people"
    elif not first:
        what = "an empty body"
    elif first.startswith(_ANSWERS):
        return ""
    else:
        what = f"text that is none of its API's, {hidden.cut(first.decode('utf-8', 'replace'), _GLIMPSE)!r}"
    kind = hidden.cut(content_type, 80) or "no content type"
    version = " It should end in '/v1'." if api.startswith("openai.") and not _VERSION.search(base_url) else ""
    return (
        f"{provider} at {base_url} answered {status} ({kind}) with {what}, not with an answer of its API."
        f" Is base_url right?{version} If it is, see what answers there: a proxy or a page to log in at may stand in between."
    )


def _said(body: bytes, hidden: SecretRedactor) -> tuple[str, str]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", " ".join(_TAG.sub(" ", hidden.cut(body.decode("utf-8", "replace"), 4 * _SHOWN)).split())
    value = value[0] if isinstance(value, list) and value else value
    error = (value.get("error") or _first(value.get("errors")) or value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return "", error if isinstance(error, str) else body.decode("utf-8", "replace")
    code = next((word for key in ("code", "type", "status") if isinstance(word := error.get(key), str) and word), "")
    said = next((word for key in _MESSAGES if (word := error.get(key))), None)
    whole = body.decode("utf-8", "replace")
    return code, _with_cause(said, error.get("metadata")) if isinstance(said, str) else whole


def _first(errors: object) -> object:
    return errors[0] if isinstance(errors, list) and errors else None


def _with_cause(said: str, metadata: object) -> str:
    """What a gateway says, and what the provider behind it said."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return f"{said}: {raw}" if isinstance(raw, str) and raw else said
