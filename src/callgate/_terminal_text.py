"""Untrusted text made safe for a terminal: nothing in it can move the cursor, hide itself or reorder what is read.

Here because everything that is shown to a person comes from a model, a tool or a stranger's server. Pure. Must not know of any terminal.
"""

from __future__ import annotations

import json
import unicodedata

__all__ = ["one_line", "printable", "printable_json"]

_SHOWN_AS_ESCAPES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters (bidirectional marks and zero-width ones among them), lone surrogates, Unicode's line separators."""
_TAGS = range(0xE0000, 0xE1000)
"""Invisible characters that can carry a hidden message."""


def printable(text: str) -> str:
    """`text` with every character that is not plainly visible shown as an escape; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in "\n\t" or _is_plain(char) else _escape(char) for char in text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 200) -> str:
    """`text` made printable in one line, at most `limit` characters of it."""
    flat = printable(" ".join(text[: 4 * limit].split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def printable_json(line: str) -> str:
    """A line of JSON that says the same, with every character that is not plainly visible as an escape of JSON."""
    if line.isascii() and line.isprintable():
        return line
    return "".join(char if _is_plain(char) else _json_escape(char) for char in line)


def _is_plain(char: str) -> bool:
    return ord(char) not in _TAGS and (char.isprintable() or unicodedata.category(char) not in _SHOWN_AS_ESCAPES)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _json_escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if char.isascii() else json.dumps(char)[1:-1]
