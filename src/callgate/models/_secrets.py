"""x."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

__all__ = ["NO_SECRETS", "SecretRedactor", "redact_url", "secrets_in_url"]

_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_SECRET_NAMES = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


class SecretRedactor:
    """Values that must never be shown. Its own text shows none of them.

    Args:
        values: Keys and the like; shorter ones than four characters are left alone, they would match anything.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(sorted({value for value in values if len(value) >= 4}, key=len, reverse=True))

    @classmethod
    def of_headers(cls, headers: Mapping[str, str], more: Iterable[str] = ()) -> SecretRedactor:
        """The values of those headers that carry credentials, with and without their scheme; and `more`."""
        secret = [value for name, value in headers.items() if _SECRET_NAMES.search(name)]
        return cls([*more, *secret, *(value.partition(" ")[2] for value in secret)])

    def redact(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, "***")
        return text

    def cut(self, text: str, chars: int) -> str:
        """The first characters of a text. Redacted before it is cut, since half of a value would not be found any more."""
        return self.redact(text)[:chars]

    def __repr__(self) -> str:
        return f"<{len(self._values)} hidden values>"


NO_SECRETS = SecretRedactor()


def redact_url(url: str) -> str:
    """A URL as it may be shown: without user, password, query and fragment."""
    scheme, rest = _without_scheme(url)
    place = rest.partition("#")[0].partition("?")[0]
    host, slash, path = place.partition("/")
    return f"{scheme}{host.rpartition('@')[2]}{slash}{path}"


def _without_scheme(url: str) -> tuple[str, str]:
    """The scheme with its `://`, empty where a URL is written without one, and the rest."""
    found = _SCHEME.match(url)
    return (found[0], url[found.end() :]) if found else ("", url)


def secrets_in_url(url: str) -> list[str]:
    """The user's part and the query's values of a URL, as written and decoded: libraries repeat URLs in their errors."""
    place, _, query = _without_scheme(url)[1].partition("#")[0].partition("?")
    user = place.partition("/")[0].rpartition("@")[0]
    found = [user, user.partition(":")[2], *(pair.partition("=")[2] for pair in query.split("&"))]
    return [value for written in found for value in (written, unquote(written))]
