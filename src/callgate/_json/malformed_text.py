"""Inspect text that is not JSON: whether it was cut off, and how to quote a part of it.

Pure. The time is linear in the text's length. Decides nothing; `strict_parser` and the parse stage decide.
"""

from __future__ import annotations

import re

__all__ = ["SURROGATE", "clip", "ends_inside", "outside_strings", "unclosed", "utf8", "utf8_size", "without_surrogates"]

SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_PROBE = 'x""'
"""Appended to a text to detect and close a string that the text leaves open. Has no other effect."""
_PIECE = 1_048_576
"""How many characters are encoded at once.

Encoding holds the interpreter lock, so the event loop cannot run meanwhile.
"""
_STAND_INS = "\x01\x02\x03\ufdd0\ufdd1"
"""Characters that hardly any text contains."""
_NO_MARKS = re.compile(r"[^\[\]{}\"]+")


def outside_strings(text: str) -> str:
    """Return `text` with every double-quoted string replaced by `""`, and an unterminated one by `"`."""
    replaced = _STRING.sub('""', text + _PROBE)  # a constant: a replacement function takes four times as long
    rest = replaced[: -len(_PROBE)]
    return rest if replaced.endswith(_PROBE) else rest + '"'


def ends_inside(text: str) -> bool:
    """Return whether `text` ends inside a list, an object or a double-quoted string.

    A closing bracket of the wrong kind counts as closing; one without an opening bracket is ignored.
    """
    return unclosed(outside_strings(text))


def unclosed(outside: str) -> bool:
    """Return what `ends_inside` returns for a text, given the output of `outside_strings` for this text."""
    marks = _NO_MARKS.sub("", outside.replace('""', ""))
    if marks.endswith('"'):
        return True
    depth = 0
    for mark in marks:
        depth = depth + 1 if mark in "[{" else max(0, depth - 1)
    return depth > 0


def utf8_size(text: str, limit: int) -> int | None:
    """Return the size of `text` in bytes of UTF-8. Return None if it contains a lone surrogate.

    If the size is above `limit`, the result may be any number above `limit`.
    """
    size = 0
    try:
        for start in range(0, len(text), _PIECE):
            size += len(text[start : start + _PIECE].encode())
            if size > limit:
                break
    except UnicodeEncodeError:
        return None
    return size


def utf8(text: str) -> bytes:
    """Encode `text` as UTF-8 in pieces, so that other threads can run in between."""
    if len(text) <= _PIECE:
        return text.encode()
    return b"".join(text[start : start + _PIECE].encode() for start in range(0, len(text), _PIECE))


def without_surrogates(text: str) -> str:
    """Return `text` with each lone surrogate replaced by U+FFFD.

    The encoder replaces lone surrogates by question marks, which is many times faster than replacing them one by one.
    Meanwhile, the text's own question marks are replaced by a character that the text does not contain.
    """
    stand_in = next((mark for mark in _STAND_INS if mark not in text), None)
    if stand_in is None:
        return SURROGATE.sub("\ufffd", text)
    return text.replace("?", stand_in).encode("utf-8", "replace").decode().replace("?", "\ufffd").replace(stand_in, "?")


def clip(text: str, limit: int = 80) -> str:
    """Return at most `limit` characters of `text`, quoted and escaped for a message."""
    shown = text if len(text) <= limit else text[:limit] + "…"
    return ascii(shown) if SURROGATE.search(shown) else repr(shown)
