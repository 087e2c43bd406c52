"""Tool calls in plain text, as models write them if their provider has no structured calls or fails to parse them.

Every family of models has a dialect. In reading order:

- `text_reader` (`TextReader`, which reads all dialects from a stream), `text_and_call_parts` (what it returns),
  `dialect` (what a dialect is) and `families` (one module per dialect).
- Reading a stream: `text_cursor`, `markers`, `marker_search`.
- The text around a call: `text_output`, `line_context`, `json_nesting`, `mentioned_calls`; and `example_phrases` with `quotation_phrases`,
  `refusal_phrases`, `phrases_of_other_languages` and `phrase_patterns`.
- Shared by the dialects: `json_calls` with `marked_json`, `python_calls` with `python_literals`, `tagged_calls` with `tag_values`,
  `typed_values`, `known_tools`, `schema_matching`.

Only text that a model wrote may be fed to a reader, never a tool's result. Knows the tools' names and schemas; runs and
validates nothing.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect
from callgate.models.dialects.families import ALL_DIALECTS
from callgate.models.dialects.text_and_call_parts import FoundCall, ParsedPart, ParsedText, ReasoningPart, TextPart, collect_parts
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
