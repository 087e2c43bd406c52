"""Serialise an attempt for another process: plain data, and a description of what cannot be sent.

Separate from the runner because attempts are sent to other machines in the same form. Must not know where the other process is.
"""

from __future__ import annotations

import time

from msgspec import Raw
from msgspec.structs import replace

from callgate._runners.process.worker_protocol import CallMessage
from callgate.protocols import RunRequest

__all__ = ["call_message"]

_MOST_LEVELS = 17
_MOST_VALUES, _MOST_CHARS = 250_000, 67_108_864
"""The limits of the scope's `extra`, the same as a result's. A value that occurs several times is counted each time."""


def call_message(request: RunRequest, target: str, *, max_bytes: int, cpu_s: int | None = None) -> CallMessage:
    """Return the attempt as plain data.

    Args:
        target: The import target of the tool; see `import_target`.
        max_bytes: The largest result that may be sent back.
        cpu_s: Processor time of the call; None: no limit.
    """
    context = request.context
    scope = context.scope
    not_sent = _why_not_sent(scope.extra)
    return CallMessage(
        target=target,
        arguments=Raw(request.approved.arguments_json),
        scope=replace(scope, extra=None if not_sent else scope.extra, streaming=None) if not_sent or scope.streaming is not None else scope,
        extra=not_sent,
        call_id=context.call_id,
        uid=context.uid,
        tool=context.tool,
        attempt=request.attempt,
        key=context.idempotency_key,
        deadline=time.monotonic() + request.timeout_s,
        show_kill_hint=context.show_kill_hint,
        max_bytes=max_bytes,
        cpu_s=cpu_s,
    )


def _why_not_sent(extra: object) -> str:
    """Return a description of the scope's `extra` if it cannot be sent, else ''. Plain JSON data within the limits can be sent."""
    values, chars, level = _MOST_VALUES, _MOST_CHARS, [extra]
    for _ in range(_MOST_LEVELS):
        below: list[object] = []
        for value in level:
            if isinstance(value, str):
                chars -= len(value)
            elif type(value) is dict:
                if not all(isinstance(key, str) for key in value):
                    return _live_object_note(extra)
                chars -= sum(map(len, value))
                values -= len(value)
                below += value.values() if values >= 0 else ()
            elif type(value) is list or type(value) is tuple:
                values -= len(value)
                below += value if values >= 0 else ()
            elif value is not None and not isinstance(value, (int, float, bool)):
                return _live_object_note(extra)
            if values < 0 or chars < 0:
                return f"a {type(extra).__name__} of more than {_MOST_VALUES} values or {_MOST_CHARS} characters"
        if not below:
            return ""
        level = below
    return _live_object_note(extra)


def _live_object_note(extra: object) -> str:
    return f"a live {type(extra).__name__}"
