"""Make untrusted text safe for a terminal: escape characters that move the cursor, are invisible or reorder text.

Everything that is shown to a person may come from a model, a tool or an untrusted server. Pure. Knows nothing of terminals.
"""

from __future__ import annotations

import json
import unicodedata

__all__ = ["one_line", "printable", "printable_json", "shortened"]

_SHOWN_AS_ESCAPES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters (bidirectional marks and zero-width ones among them), lone surrogates, Unicode's line separators."""
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols that are shown as nothing or as blank space, and so could make two names look alike."""
_TAGS = range(0xE0000, 0xE1000)
"""Invisible characters that can carry a hidden message."""


def printable(text: str) -> str:
    """Return `text` with every invisible or control character escaped, except line ends and tabs."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in "\n\t" or _is_plain(char) else _escape(char) for char in text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 200) -> str:
    """Return at most `limit` characters of `text`, printable and in one line."""
    flat = printable(" ".join(text[: 4 * limit].split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def shortened(text: str, limit: int) -> str:
    """Return `text`, or its first `limit` characters and how many it has in all."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters in all)"


def printable_json(line: str) -> str:
    """Return equivalent JSON with every invisible or control character as a JSON escape."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(char if _is_plain(char) else _json_escape(char) for char in line)


def _is_plain(char: str) -> bool:
    return ord(char) not in _TAGS and char not in _BLANKS and (char.isprintable() or unicodedata.category(char) not in _SHOWN_AS_ESCAPES)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _json_escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if char.isascii() else json.dumps(char)[1:-1]
