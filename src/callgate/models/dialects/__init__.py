"""Calls in plain text: what models write where their provider has no structured calls, or where it fails.

Every family of models has a dialect of its own. `TextReader` reads them all from a stream, with or without a hint. Only what a model
wrote may be fed to it, never what a tool returned. Knows the tools' names and schemas; runs and checks nothing.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.families import ALL_DIALECTS
from callgate.models.dialects.parsed_parts import FoundCall, ParsedPart, ParsedText, ReasoningPart, TextPart, collect_parts
from callgate.models.dialects.text_reader import TextReader, read_text

__all__ = [
    "DIALECTS",
    "Dialect",
    "FoundCall",
    "ParsedPart",
    "ParsedText",
    "ReasoningPart",
    "TextPart",
    "TextReader",
    "collect_parts",
    "read_text",
]

DIALECTS: dict[str, Dialect] = {one.name: one for one in ALL_DIALECTS}
"""Every dialect by its name."""
