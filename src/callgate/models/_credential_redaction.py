"""Remove credentials from text and URLs before they are shown.

Stands apart from the transport because errors of other modules show URLs too. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus, unquote

__all__ = ["NO_SECRETS", "SecretRedactor", "redact_url", "secrets_in_url"]

_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_SECRET_NAMES = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


class SecretRedactor:
    """Replaces secret values in text. Its own representation shows none of them.

    Args:
        values: Keys, tokens and passwords. They are found as they are, escaped as in a URL or a form, and with the slashes of JSON escaped.
            Values shorter than four characters are ignored: they would match ordinary text.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        written = {form for value in values if len(value) >= 4 for form in _forms(value)}
        self._values = tuple(sorted(written, key=len, reverse=True))

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], others: Iterable[str] = ()) -> SecretRedactor:
        """Collect `others` and the values of the headers that carry credentials, with and without their scheme (`Bearer`)."""
        secret = [value for name, value in headers.items() if _SECRET_NAMES.search(name)]
        return cls([*others, *secret, *(value.partition(" ")[2] for value in secret)])

    def redact(self, text: str) -> str:
        """Return the text with every secret value replaced by `***`."""
        for value in self._values:
            text = text.replace(value, "***")
        return text

    def redact_and_truncate(self, text: str, chars: int) -> str:
        """Return the first `chars` characters of the redacted text. Redacts first: half of a secret would not be found."""
        return self.redact(text)[:chars]

    def __repr__(self) -> str:
        return f"<{len(self._values)} hidden values>"


def _forms(value: str) -> tuple[str, ...]:
    return (value, quote(value, safe=""), quote(value), quote_plus(value), value.replace("/", "\\/"))


NO_SECRETS = SecretRedactor()


def redact_url(url: str) -> str:
    """Return the URL without user, password, query and fragment."""
    scheme, rest = _split_scheme(url)
    location = rest.partition("#")[0].partition("?")[0]
    host, slash, path = location.partition("/")
    return f"{scheme}{host.rpartition('@')[2]}{slash}{path}"


def _split_scheme(url: str) -> tuple[str, str]:
    """Split a URL into its scheme with `://` (empty if there is none) and the rest."""
    found = _SCHEME.match(url)
    return (found[0], url[found.end() :]) if found else ("", url)


def secrets_in_url(url: str) -> list[str]:
    """Return the user part and the query values of a URL, as written and decoded: libraries repeat URLs in their errors."""
    location, _, query = _split_scheme(url)[1].partition("#")[0].partition("?")
    user = location.partition("/")[0].rpartition("@")[0]
    found = [user, user.partition(":")[2], *(pair.partition("=")[2] for pair in query.split("&"))]
    return [value for written in found for value in (written, unquote(written))]
