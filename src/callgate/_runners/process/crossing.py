"""What of an attempt crosses into another process: plain values, and the name of whatever stays behind.

Apart from the runner because an attempt that goes to another machine crosses in the same form. Must not know where the other process is.
"""

from __future__ import annotations

import time

from msgspec import Raw
from msgspec.structs import replace

from callgate._runners.process.wire import Call
from callgate.protocols import RunRequest

__all__ = ["crossing"]


def crossing(request: RunRequest, target: str, *, max_bytes: int, cpu_s: int | None = None) -> Call:
    """The attempt as plain values.

    Args:
        target: Where the other process finds the tool; see `target`.
        max_bytes: The largest result that may come back.
        cpu_s: Processor time of the call; None: no limit.
    """
    context = request.context
    scope = context.scope
    live = "" if _is_plain(scope.extra) else type(scope.extra).__name__
    return Call(
        target=target,
        arguments=Raw(request.approved.encoded),
        scope=replace(scope, extra=None if live else scope.extra, streaming=None) if live or scope.streaming is not None else scope,
        extra=live,
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


def _is_plain(value: object, depth: int = 16) -> bool:
    """Whether a value is plain JSON data."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return True
    if depth == 0:
        return False
    if type(value) in (list, tuple):
        return all(_is_plain(item, depth - 1) for item in value)  # type: ignore[attr-defined]
    if type(value) is dict:
        return all(isinstance(key, str) and _is_plain(item, depth - 1) for key, item in value.items())
    return False
