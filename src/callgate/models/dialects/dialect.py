"""A dialect: what opens a call in a model's text, and how the call is read.

A dialect is data and a reader. The reader starts behind the opener, moves the cursor and yields the calls it finds; it raises `NotACall` if
the text is not a call after all, and everything since its last call is text again. A dialect does not see the text that is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from msgspec import Struct

from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import TextCursor

__all__ = ["Dialect", "ParsedCalls"]

ParsedCalls = Generator[FoundCall | None, None, None]
"""Yields calls as they are complete, and None when the reader needs more text."""


class Dialect(Struct, frozen=True, kw_only=True):
    """How one family of models writes calls."""

    name: str
    families: str
    """The models that write it."""
    example: str
    """One call of `get_weather` for Paris."""
    openers: tuple[str, ...]
    """The literals that open a call."""
    read: Callable[[TextCursor, KnownTools, str], ParsedCalls]
    """Reads calls from behind the opener, which is its third argument."""
    line_start_only: bool = False
    """Whether its openers are ordinary text: they count only at the start of a line, and never after a final answer."""
    hint_only: bool = False
    """Whether it is read only if the host names it."""
    read_hinted: Callable[[TextCursor, KnownTools, str], ParsedCalls] | None = None
    """Replaces `read` if the host names the dialect: its openers then count inside a line as well."""
    read_first: Callable[[TextCursor, KnownTools, str], ParsedCalls] | None = None
    """Reads a call without an opener at the start of a message, or behind its reasoning."""
    ignored_markers: tuple[str, ...] = ()
    """Markers of the family that have no meaning and are not shown."""
    reasoning_markers: tuple[tuple[str, str], ...] = ()
    """Pairs of markers that open and close reasoning. An empty opener stands for one that the prompt always writes."""

    @property
    def is_unmarked(self) -> bool:
        """Whether its openers are ordinary text."""
        return self.line_start_only or self.hint_only or self.read_hinted is not None
