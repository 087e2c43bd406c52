"""A provider's refusal, in words that can be shown: what its error body says, without credentials.

Providers write errors in a dozen shapes; what none of them fits is shown as it came, and shortened. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

__all__ = ["Hidden", "refusal"]

_SHOWN = 2_000
_SECRET_NAMES = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_HINTS = {
    401: "Check the key{key}.",
    403: "Check what the key{key} may do.",
    404: "Check the model's name and the base URL.",
    413: "Send less.",
    429: "Wait, send less at a time, or ask the provider for a higher limit.",
}
_TAG = re.compile(r"<[^>]{0,500}>")


class Hidden:
    """Values that must never be shown. Its own text shows none of them.

    Args:
        values: Keys and the like; shorter ones than four characters are left alone, they would match anything.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(sorted({value for value in values if len(value) >= 4}, key=len, reverse=True))

    @classmethod
    def of_headers(cls, headers: Mapping[str, str], more: Iterable[str] = ()) -> Hidden:
        """The values of those headers that carry credentials, with and without their scheme; and `more`."""
        secret = [value for name, value in headers.items() if _SECRET_NAMES.search(name)]
        return cls([*more, *secret, *(value.partition(" ")[2] for value in secret)])

    def redact(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, "***")
        return text

    def __repr__(self) -> str:
        return f"<{len(self._values)} hidden values>"


def refusal(provider: str, status: int, body: bytes, *, key_name: str = "", location: str = "") -> tuple[str, str]:
    """Code and message of a refused request.

    Args:
        provider: Who refused.
        status: The HTTP status.
        body: What came with it, perhaps cut.
        key_name: The environment variable of the key, for the next step.
        location: Where a redirect points.
    """
    code, said = _said(body)
    if 300 <= status < 400:
        where = f" to {location[:300]}" if location else ""
        said = f"a redirect{where}, which is not followed: the key would go along. Set base_url to the address it ends at"
    hint = _HINTS.get(status, "").format(key=f" in {key_name}" if key_name else "")
    text = f"{provider} answered {status}: {said[:_SHOWN].rstrip('. ') or 'without a word'}. {hint}"
    return code or f"http_{status}", text.rstrip()


def _said(body: bytes) -> tuple[str, str]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", " ".join(_TAG.sub(" ", body[: 4 * _SHOWN].decode("utf-8", "replace")).split())
    value = value[0] if isinstance(value, list) and value else value
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return "", error if isinstance(error, str) else body[:_SHOWN].decode("utf-8", "replace")
    code = next((word for key in ("code", "type", "status") if isinstance(word := error.get(key), str) and word), "")
    said = next((word for key in ("message", "detail", "error") if (word := error.get(key))), None)
    return code, said if isinstance(said, str) else body[:_SHOWN].decode("utf-8", "replace")
