"""Calls in plain text: what models write where their provider has no structured calls, or where it fails.

Every family of models has a dialect of its own. `TextReader` reads them all from a stream, with or without a hint. Only what a model
wrote may be fed to it, never what a tool returned. Knows the tools' names and schemas; runs and checks nothing.
"""

from __future__ import annotations

from callgate.models.dialects.families import ALL
from callgate.models.dialects.parts import Found, Part, Reading, Shown, Thought, gather
from callgate.models.dialects.reader import TextReader, read_text
from callgate.models.dialects.shape import Dialect

__all__ = ["DIALECTS", "Dialect", "Found", "Part", "Reading", "Shown", "TextReader", "Thought", "gather", "read_text"]

DIALECTS: dict[str, Dialect] = {one.name: one for one in ALL}
"""Every dialect by its name."""
