"""End what is left of a worker whose engine has ended, so that a call may start again without the first attempt still acting.

Used by the engine that takes a run over. A supervisor ends its tree when its engine goes; this waits for that, and ends what is left.
"""

from __future__ import annotations

import asyncio
from functools import partial

from callgate._in_thread import in_thread
from callgate._process_identity import has_ended
from callgate._runners.process.worker_connection import end_marked

__all__ = ["end_worker"]

_PATIENCE_S = 3.0
_LOOK_S = 0.01


async def end_worker(worker: str) -> bool:
    """Make sure that nothing of a worker runs any more; True where that is certain.

    Args:
        worker: As `Link.name` gives it: its supervisor's `process_identity`, a space, and the marker that its processes carry.
    """
    supervisor, _, marker = worker.partition(" ")
    if not supervisor or not marker:
        return False
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE_S
    while not has_ended(supervisor):
        if loop.time() > until:
            return False
        await asyncio.sleep(_LOOK_S)
    return await in_thread(partial(end_marked, marker)) == 0
