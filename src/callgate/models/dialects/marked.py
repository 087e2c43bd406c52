"""JSON calls between markers: what most families write, each with markers of its own.

The markers say that this is a call, so the name may be one that no tool has: the engine's answer lists those there are. The value is
read to its own closing bracket; a closing marker that is missing, or brackets too many, change nothing. Knows the markers of no family.
"""

from __future__ import annotations

import re

from callgate.models.dialects.cursor import Cursor, NoCall
from callgate.models.dialects.json_calls import calls_of
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Reads

__all__ = ["Marked"]

_STRAY = re.compile(r"[\s;,\]}]*")
_FENCES = ("```json", "```")


class Marked:
    """A reader of objects, and of lists of objects, up to one of these markers."""

    def __init__(self, *closers: str) -> None:
        self._closers = closers

    def __call__(self, cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
        yield from cursor.white()
        yield from cursor.take(*_FENCES)
        yield from cursor.white()
        if (yield from cursor.peek()) not in ("{", "["):
            raise NoCall
        while (yield from cursor.peek()) in ("{", "["):
            yield from (yield from calls_of(cursor, tools))
            yield from cursor.run(_STRAY)
            yield from cursor.take("```")
            yield from cursor.white()
        if self._closers:
            yield from cursor.take(*self._closers)
