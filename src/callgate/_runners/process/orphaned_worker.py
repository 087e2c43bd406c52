"""End what is left of a worker whose engine has ended, so that its call can start again without the first attempt still running.

Used by the engine that takes over a run. A supervisor ends its process tree when its engine ends; this waits for that, and ends the rest.
"""

from __future__ import annotations

import asyncio
from functools import partial

from callgate._process_identity import has_ended
from callgate._run_in_thread import in_thread
from callgate._runners.process.worker_connection import kill_marked_processes

__all__ = ["end_worker"]

_PATIENCE_S = 3.0
_LOOK_S = 0.01


async def end_worker(worker: str) -> bool:
    """End all processes of a worker; return True if certainly none still runs.

    Args:
        worker: A `WorkerConnection.name`: the `process_identity` of its supervisor, a space, and the marker of its processes.
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
    return await in_thread(partial(kill_marked_processes, marker)) == 0
