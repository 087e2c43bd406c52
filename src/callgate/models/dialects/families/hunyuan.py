"""Hunyuan 3 and 4: alternating keys and values in a section; each release has its own suffix for all tags.

    <tool_calls><tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call></tool_calls>

Source: the chat templates of Hy3-preview and Hy4-preview. Hunyuan A13B writes like Jamba.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.families.glm import KeyValueReader
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.text_cursor import NotACall, TextCursor

__all__ = ["HUNYUAN"]

_KNOWN_SUFFIXES = ("opensource", "6124c78e")
"""The suffixes of Hy3-preview and Hy4-preview."""
_SUFFIX = re.compile(r"\w{0,40}")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    suffix = ""
    if opener.endswith(":"):
        suffix, _ = yield from cursor.read_until(">")
        if not _SUFFIX.fullmatch(suffix):
            raise NotACall
        suffix = f":{suffix}"
    read = KeyValueReader(f"</tool_call{suffix}>", suffix=suffix, is_wrapped=True)
    count = 0
    yield from cursor.skip_space()
    while (yield from cursor.take(f"<tool_call{suffix}>")):
        yield from read(cursor, tools, opener)
        count += 1
        yield from cursor.skip_space()
    if not count:
        raise NotACall
    yield from cursor.take(f"</tool_calls{suffix}>")


HUNYUAN = Dialect(
    name="hunyuan",
    families="Hunyuan 3 and 4",
    example=("<tool_calls><tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call></tool_calls>"),
    openers=("<tool_calls>", "<tool_calls:"),
    read=_read,
    reasoning_markers=tuple((f"<think:{suffix}>", f"</think:{suffix}>") for suffix in _KNOWN_SUFFIXES),
)
