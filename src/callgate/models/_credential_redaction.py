"""Remove credentials from text and URLs before they are shown.

Stands apart from the transport because errors of other modules show URLs too. Pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

__all__ = ["NO_SECRETS", "SecretRedactor", "redact_url", "secrets_in_url"]

_SCHEME = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_SECRET_NAMES = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]*")


class SecretRedactor:
    """Replaces secret values in text, also where they are escaped for a URL, a form or JSON. Its own representation shows none of them.

    Args:
        values: Keys, tokens and passwords. Values shorter than four characters are ignored: they would match ordinary text.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(sorted({value for value in values if len(value) >= 4}, key=len, reverse=True))

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], others: Iterable[str] = ()) -> SecretRedactor:
        """Collect `others` and the values of the headers that carry credentials, with and without their scheme (`Bearer`).

        Of `Basic`, the user with the password and the password alone are collected, too.
        """
        secret = [value for name, value in headers.items() if _SECRET_NAMES.search(name)]
        return cls([*others, *secret, *(part for value in secret for part in _parts(value))])

    def redact(self, text: str) -> str:
        """Return the text with every secret value replaced by `***`."""
        for value in self._values:
            text = text.replace(value, "***")
            # No escaping changes letters and digits, so that a text without them need not be searched, which is slow.
            if not (value.isascii() and value.isalnum()) and max(_ALPHANUMERIC.findall(value), key=len) in text:
                text = re.sub("".join(map(_escaped, value)), "***", text)
        return text

    def redact_and_truncate(self, text: str, chars: int) -> str:
        """Return the first `chars` characters of the redacted text. Redacts first: half of a secret would not be found."""
        return self.redact(text)[:chars]

    def __repr__(self) -> str:
        return f"<{len(self._values)} hidden values>"


def _parts(value: str) -> list[str]:
    """Return the credentials of a header's value without their scheme, and those of `Basic` decoded."""
    scheme, _, given = value.partition(" ")
    if scheme.lower() != "basic":
        return [given]
    try:
        pair = base64.b64decode(given).decode()
    except ValueError:
        return [given]
    return [given, pair, pair.partition(":")[2]]


def _escaped(char: str) -> str:
    """Return a pattern for a character as it is, percent-encoded up to twice, as JSON escapes it, and as `+` for a space of a form."""
    if char.isascii() and char.isalnum():
        return char
    percent = "".join(f"%(?:25)?{byte:02x}" for byte in char.encode("utf-8", "replace"))
    plain = f"{re.escape(char)}{'|[+]' if char == ' ' else ''}"
    return rf"(?:{plain}|\\{{1,3}}(?:{re.escape(char)}|(?i:u{ord(char):04x}))|(?i:{percent}))"


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
