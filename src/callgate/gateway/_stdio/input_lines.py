"""Read the lines of a client within bounds. Of a line that is too long, only the ends are kept, which show what kind of message it is."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

__all__ = ["LongLine", "next_line"]

_KEPT_BYTES: Final = 512
_TEXT: Final = rb'"(?:[^"\\]|\\.)*"'
_VALUE: Final = _TEXT + rb"|-?\d{1,19}(?=\s*[,}])"
_MEMBER: Final = re.compile(rb"\s*(%b)\s*:\s*(?:(%b)\s*(,)?)?" % (_TEXT, _VALUE))
_LAST_MEMBERS: Final = re.compile(rb"(?:,\s*%b\s*:\s*(?:%b)\s*)+\}\s*$" % (_TEXT, _VALUE))


class LongLine(Struct, frozen=True):
    """The ends of a line that is longer than the limit."""

    beginning: bytes
    end: bytes

    def members(self) -> Mapping[str, Any]:
        """Return the members of the object that the line seems to be, as far as they are at its ends; the values of large ones are None."""
        last = _LAST_MEMBERS.search(self.end)
        found = {} if last is None else _members(self.end[last.start() + 1 :])
        opened = self.beginning.lstrip()
        return {**found, **_members(opened[1:])} if opened.startswith(b"{") else {}


async def next_line(lines: asyncio.StreamReader) -> bytes | LongLine:
    """Return the next line; empty at the end of the input. A line that is longer than the limit of the reader is read to its end."""
    beginning = end = b""
    while True:
        try:
            line = await lines.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError as error:
            part = await lines.read(error.consumed)
            beginning, end = beginning or part[:_KEPT_BYTES], (end + part)[-_KEPT_BYTES:]
            continue
        return LongLine(beginning, (end + line)[-_KEPT_BYTES:]) if beginning else line


def _members(data: bytes) -> dict[str, Any]:
    """Return the members that `data` begins with, and the key of the first one whose value is not whole or not simple."""
    found: dict[str, Any] = {}
    at = 0
    while (member := _MEMBER.match(data, at)) is not None:
        try:
            found[json.loads(member[1])] = None if member[2] is None else json.loads(member[2])
        except ValueError:
            return found
        if member[3] is None:
            return found
        at = member.end()
    return found
