"""Read the heads of HTTP/1.1 messages that have a simple form, and leave every other message to h11.

h11 executed 40 of 100 instructions of a gateway's call. Nearly all messages have a head without anything that needs judgement: printable
ASCII, lines that end in CRLF, no name twice, nothing about the connection but that it is kept. Such a head is read here with one regular
expression, and h11 reads it in the same way, which a test verifies with changed messages. Nothing is refused here: what is not simple is
h11's to read or refuse, so what is valid HTTP is decided in one place. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

__all__ = ["SimpleHead", "is_simple", "simple_head"]

_HEAD: Final = re.compile(rb"([!-~][ -~]*)\r\n((?:[-!#$%&'*+.^_`|~0-9a-zA-Z]+:[ -~]*\r\n)+)\r\n")
_MOST_DIGITS: Final = 15


class SimpleHead(Struct, frozen=True, eq=False):
    """The head of a message."""

    first_line: bytes
    headers: dict[bytes, bytes]
    """The values by the names in lower case, in their order."""
    size_bytes: int
    body_bytes: int | None
    """The length of the body; None if it is chunked."""


def simple_head(data: bytes | bytearray, max_bytes: int) -> SimpleHead | None:
    """Return the head that `data` begins with; None if it is not complete, is larger than `max_bytes`, or is not simple."""
    found = _HEAD.match(data)
    if found is None or found.end() > max_bytes:
        return None
    lines = found[2].split(b"\r\n")
    lines.pop()
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip(b" ")
    if len(headers) != len(lines) or headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
    if length is None:
        return SimpleHead(found[1], headers, found.end(), None) if coding == b"chunked" else None
    if coding is not None or not length.isdigit() or len(length) > _MOST_DIGITS:
        return None
    return SimpleHead(found[1], headers, found.end(), int(length))


def is_simple(head: bytes, headers: int) -> bool:
    """Return whether a head that is to be sent has a simple form and this number of headers: no value has made another one."""
    return head.count(b"\n") == headers + 2 and _HEAD.fullmatch(head) is not None and b" \r\n" not in head and b":  " not in head
