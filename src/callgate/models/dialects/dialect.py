"""The one shape of all dialects: what opens a call, and how it is read from there.

A dialect is data and a reader. Its reader starts behind the opener, moves the cursor and yields what it finds; it raises `NoCall` where
what stands there is no call after all, and everything since its last find is text again. A dialect never sees what the user is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from msgspec import Struct

from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.parsed_parts import FoundCall
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["Dialect", "ParsedCalls"]

ParsedCalls = Generator[FoundCall | None, None, None]
"""What a reader yields: calls as they are complete, and nothing when it waits for text."""


class Dialect(Struct, frozen=True, kw_only=True):
    """How one family of models writes calls."""

    name: str
    families: str
    """Who writes so."""
    example: str
    """One call of `get_weather` for Paris."""
    openers: tuple[str, ...]
    read: Callable[[TextCursor, KnownTools, str], ParsedCalls]
    """Reads on behind the opener, which it is told."""
    bare: bool = False
    """Its openers are ordinary text: they count at the start of a line only, and never behind a final answer."""
    by_hint: bool = False
    """Only for hosts that name it."""
    read_hinted: Callable[[TextCursor, KnownTools, str], ParsedCalls] | None = None
    """Reads for hosts that name it, who want its openers to count inside a line as well."""
    read_first: Callable[[TextCursor, KnownTools, str], ParsedCalls] | None = None
    """Reads where a message, or what follows its thought, starts with a call that has no opener."""
    silent: tuple[str, ...] = ()
    """Its markers that say nothing and are not shown."""
    thoughts: tuple[tuple[str, str], ...] = ()
    """What opens and what closes a thought. Nothing opens one that the prompt always opens."""

    @property
    def unmarked(self) -> bool:
        """Whether its openers are ordinary text, wherever they count."""
        return self.bare or self.by_hint or self.read_hinted is not None
