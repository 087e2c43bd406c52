"""Summarise the calls of a run from its record, in one short line each.

The summaries serve as a memory for later steps and runs. Each line has the tool, the arguments and the result of a call.
Nested calls are left out. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec import Struct

from callgate._call_summary import CallSummary, summarise
from callgate._terminal_text import one_line
from callgate.events import Event

__all__ = ["Episode", "episodes"]

_MOST_ARGUMENTS = 120
_MOST_RESULT = 160


class Episode(Struct, frozen=True, kw_only=True):
    """A short summary of one call."""

    uid: str
    at_ns: int
    """When the call was received, in UTC nanoseconds."""
    tool: str
    status: str
    """`ok`, `error`, `unknown`, `asked`, `aborted`, `restarted`, or `open`."""
    line: str
    """`tool(arguments): status, result`, at most about 350 characters, without line breaks."""


def episodes(events: Iterable[Event]) -> list[Episode]:
    """Return a summary of each call in these events, in the order in which the calls were received."""
    return [
        Episode(uid=call.uid, at_ns=call.at_ns, tool=call.tool, status=call.status, line=_line(call))
        for call in summarise(events)
        if not call.origin.startswith("tool:")
    ]


def _line(call: CallSummary) -> str:
    said = _outcome_text(call)
    return f"{one_line(call.tool, 64)}({_arguments(call.arguments)}): {call.status}{', ' + said if said else ''}"


def _arguments(text: str) -> str:
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return one_line(text, _MOST_ARGUMENTS)
    return one_line(", ".join(f"{key}={json.dumps(one, ensure_ascii=False)}" for key, one in value.items()), _MOST_ARGUMENTS)


def _outcome_text(call: CallSummary) -> str:
    if call.error:
        return one_line(call.error, _MOST_RESULT)
    content = call.result.get("content")
    texts = [part.get("text", "") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return one_line(" ".join(str(text) for text in texts if text), _MOST_RESULT)
