"""The notes of the engine that the model reads at the end of a result's content. Pure."""

from __future__ import annotations

from callgate.calls import Note, ToolResult
from callgate.content_parts import Part, Text
from callgate.tools.registry import BoundTool

__all__ = ["content_and_notes", "note_texts"]

_SHOWN_NOTES = frozenset({"modified", "warning"})
"""The kinds of notes that the model reads beside the result. It also reads which arguments were dropped; the others are in the metadata."""
_NOTE = "Note: "
_MOST_DROPPED = 3
"""The number of dropped arguments that are named to the model."""
_MOST_NAMED = 20
"""The number of a tool's arguments that are named to the model."""


def note_texts(notes: tuple[Note, ...], tool: BoundTool | None = None) -> tuple[Part, ...]:
    """Return the notes that the model reads.

    Args:
        tool: The tool, if it has run: its arguments that were dropped are named.
    """
    dropped = [note.text for note in notes if note.kind == "dropped" and note.path] if tool is not None else []
    shown = tuple(Text(text=f"{_NOTE}{note.text}") for note in notes if note.kind in _SHOWN_NOTES)
    return (Text(text=_tell_dropped(dropped, tool)), *shown) if dropped and tool is not None else shown


def _tell_dropped(sentences: list[str], tool: BoundTool) -> str:
    names = sorted(tool.schema.properties)
    takes = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "") if names else "no arguments"
    more = len(sentences) - _MOST_DROPPED
    told = sentences[:_MOST_DROPPED] + ([f"{more} more were dropped."] if more > 0 else [])
    return f"{_NOTE}{' '.join(told)} {tool.name} takes {takes}."


def content_and_notes(result: ToolResult) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Return a result's content without the notes at its end, and these notes."""
    shown = {f"{_NOTE}{note.text}" for note in result.metadata.notes}
    about_dropped = any(note.kind == "dropped" for note in result.metadata.notes)
    first = len(result.content)
    while first and isinstance(part := result.content[first - 1], Text):
        is_about_dropped = about_dropped and part.text.startswith(_NOTE) and f" {result.name} takes " in part.text
        if not (part.text in shown or is_about_dropped):
            break
        first -= 1
    return result.content[:first], result.content[first:]
