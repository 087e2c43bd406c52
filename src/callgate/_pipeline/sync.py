"""An event loop in a thread, for callers that have none. Knows nothing of calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from callgate.errors import UsageError

__all__ = ["LoopThread", "refuse_inside_loop"]

T = TypeVar("T")


def refuse_inside_loop() -> None:
    """Raises `UsageError` where the calling thread has a running event loop, which waiting would hold up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("call_sync was used inside a running event loop, which it would hold up. Use 'await engine.call(...)' there.")


class LoopThread:
    """One daemon thread that runs an event loop until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="callgate-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._thread.is_alive():
            self._loop.close()
