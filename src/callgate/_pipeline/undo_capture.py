"""Capture the content of files before and after a call that may write to a workspace, so that its writes can be undone.

Runs between the last check and the start of the tool: the old content is stored before the tool's code may be entered, and the new content
after that code has ended, however it ended. If the capture fails, the call does not fail: the failure is recorded, and undo refuses files
that were not captured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from callgate._pipeline.call_events import record_event
from callgate._pipeline.call_state import CallState
from callgate._run_in_thread import in_thread
from callgate._run_state.event_bodies import Reason
from callgate.protocols import CapturedChange, WriteLog
from callgate.stage_types import ApprovedCall
from callgate.tools.resource_conflicts import TouchedKeys

__all__ = ["capture_writes"]

_SCHEME = "file:"
T = TypeVar("T")


@asynccontextmanager
async def capture_writes(writes: WriteLog, state: CallState, approved: ApprovedCall, touched: TouchedKeys | None) -> AsyncIterator[None]:
    """Capture the changes of the call in its workspace while the block runs."""
    keys = _keys(touched)
    if keys == ():
        yield
        return
    tool = approved.call.tool.name
    opened = await _try(state, tool, "before", lambda: writes.begin(state.scope, state.uid, tool, keys))
    try:
        yield
    finally:
        if opened is not None:
            await asyncio.shield(asyncio.ensure_future(_record_end(writes, state, tool, opened)))


async def _record_end(writes: WriteLog, state: CallState, tool: str, opened: object) -> None:
    done = await _try(state, tool, "after", lambda: writes.finish(opened))
    if isinstance(done, CapturedChange):
        details: dict[str, object] = {
            "commit": done.commit,
            "paths": [state.recorder.cut(path) for path in done.paths],
            "count": done.count,
        }
        details |= {"unkept": [state.recorder.cut(path) for path in done.unkept]} if done.unkept else {}
        details |= {"not_looked_at": done.not_looked_at} if done.not_looked_at else {}
        record_event(state, "files.kept", Reason(reason=f"{tool} changed files", details=details))


async def _try(state: CallState, tool: str, when: str, act: Callable[[], T]) -> T | None:
    try:
        return await in_thread(act)
    except (Exception, SystemExit, GeneratorExit) as error:
        why = f"what {tool} writes could not be kept ({when} the call): {type(error).__name__}: {state.recorder.cut(error)}"
        state.recorder.log.error("Undo: %s", why)
        record_event(state, "files.not_kept", Reason(reason=why))
        return None


def _keys(touched: TouchedKeys | None) -> tuple[str, ...] | None:
    """Return the paths that the call may write; None if it may write any, because its tool does not declare them."""
    if touched is None:
        return None
    return tuple(sorted(key.removeprefix(_SCHEME) for key in touched.writes if key.startswith(_SCHEME)))
