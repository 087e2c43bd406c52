"""What can be said of a text that is no JSON: whether it was cut off, and how to show a piece of it.

Pure and linear in the text's length. Decides nothing: `strict_parser` and the parse stage do.
"""

from __future__ import annotations

import re

__all__ = ["SURROGATE", "clip", "ends_inside", "outside_strings", "unclosed", "utf8", "utf8_size", "without_surrogates"]

SURROGATE = re.compile("[\ud800-\udfff]")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_PROBE = 'x""'
"""Put behind a text: it stays as it is outside a string, and ends one that the text does not end."""
_PIECE = 1_048_576
"""Characters that are encoded at once: no other thread runs meanwhile, and the event loop is one."""
_STAND_INS = "\x01\x02\x03\ufdd0\ufdd1"
"""Characters that texts hardly ever have."""
_NO_MARKS = re.compile(r"[^\[\]{}\"]+")


def outside_strings(text: str) -> str:
    """`text` with every double-quoted string replaced by two quotes; one that never ends, by a single quote."""
    replaced = _STRING.sub('""', text + _PROBE)  # a constant, because a function for each match takes four times as long
    rest = replaced[: -len(_PROBE)]
    return rest if replaced.endswith(_PROBE) else rest + '"'


def ends_inside(text: str) -> bool:
    """Whether `text` ends inside a list, an object or a double-quoted string: what is missing is unknown.

    A bracket that closes one of the other kind closes it all the same; one that closes nothing is passed over.
    """
    return unclosed(outside_strings(text))


def unclosed(outside: str) -> bool:
    """Whether a text of which `outside_strings` gave this ends inside a list, an object or a string."""
    marks = _NO_MARKS.sub("", outside.replace('""', ""))
    if marks.endswith('"'):
        return True
    depth = 0
    for mark in marks:
        depth = depth + 1 if mark in "[{" else max(0, depth - 1)
    return depth > 0


def utf8_size(text: str, limit: int) -> int | None:
    """How many bytes `text` has in UTF-8; above `limit`, some number that is above it. None where UTF-8 cannot hold it."""
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
    """`text` in UTF-8, of which other threads let go on in between where it is long."""
    if len(text) <= _PIECE:
        return text.encode()
    return b"".join(text[start : start + _PIECE].encode() for start in range(0, len(text), _PIECE))


def without_surrogates(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair.

    The encoder writes a question mark for each, which is many times faster than replacing them one by one. So the text's own question
    marks are kept apart meanwhile, as a character that the text does not have.
    """
    stand_in = next((mark for mark in _STAND_INS if mark not in text), None)
    if stand_in is None:
        return SURROGATE.sub("\ufffd", text)
    return text.replace("?", stand_in).encode("utf-8", "replace").decode().replace("?", "\ufffd").replace(stand_in, "?")


def clip(text: str, limit: int = 80) -> str:
    """`text` quoted and escaped for a message, at most `limit` characters of it."""
    shown = text if len(text) <= limit else text[:limit] + "…"
    return ascii(shown) if SURROGATE.search(shown) else repr(shown)
