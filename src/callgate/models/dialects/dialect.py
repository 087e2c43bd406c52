"""A dialect: what opens a call in a model's text, and how the call is read.

A dialect consists of data and a reader. The reader starts after the opener, moves the cursor and yields the calls that
it finds. If the text turns out not to be a call, the reader raises `NotACall`, and everything after its last call
becomes text again. A dialect does not see the visible text.
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
    """The models that write this dialect."""
    example: str
    """An example: one call of `get_weather` for Paris."""
    openers: tuple[str, ...]
    """The literals that open a call."""
    read: Callable[[TextCursor, KnownTools, str], ParsedCalls]
    """Reads calls that start after the opener. The opener is the third argument."""
    line_start_only: bool = False
    """Whether the openers also occur in ordinary text. They then count only at the start of a line, and never after
    a final answer.
    """
    hint_only: bool = False
    """Whether the dialect is read only if the host names it."""
    read_hinted: Callable[[TextCursor, KnownTools, str], ParsedCalls] | None = None
    """Replaces `read` if the host names the dialect. The openers then also count within a line."""
    read_first: Callable[[TextCursor, KnownTools, str], ParsedCalls] | None = None
    """Reads a call without an opener at the start of a message, or directly after its reasoning."""
    ignored_markers: tuple[str, ...] = ()
    """Markers of the family that have no meaning and are not shown."""
    reasoning_markers: tuple[tuple[str, str], ...] = ()
    """Pairs of markers that open and close reasoning. An empty opener means that the prompt already opened the
    reasoning.
    """

    @property
    def is_unmarked(self) -> bool:
        """Whether the openers also occur in ordinary text."""
        return self.line_start_only or self.hint_only or self.read_hinted is not None
