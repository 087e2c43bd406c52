"""What the writers of all APIs share: how a scripted turn ends, its token counts, and frames of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from callgate.models.model_events import Usage
from callgate.testing.model_script import Call, End, Item

__all__ = ["event_frame", "finish_reason_of", "json_line", "named_event_frame", "usage_of"]


def finish_reason_of(items: Iterable[Item], ends: Mapping[str, str]) -> str | None:
    """Return the provider's finish reason for these items. None if the turn breaks off after them."""
    given = [item.reason for item in items if isinstance(item, End)]
    reason = given[0] if given else "tool_calls" if any(isinstance(item, Call) for item in items) else "stop"
    return None if reason == "cut" else ends.get(reason, reason)


def usage_of(items: Iterable[Item]) -> Usage | None:
    return next((item for item in items if isinstance(item, Usage)), None)


def event_frame(value: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def named_event_frame(value: Mapping[str, object]) -> bytes:
    return f"event: {value['type']}\n".encode() + event_frame(value)


def json_line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"
