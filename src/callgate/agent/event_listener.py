"""`EventListener`: tells the host's `on_event` of the events of one run. An error of it is logged and counted, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from callgate._secret_redaction import RedactedLog
from callgate.agent.run_events import AgentEvent
from callgate.events import Bus

__all__ = ["EventListener"]


class EventListener:
    """Calls the host's function with each event.

    Args:
        listen: The host's function.
        run: The run, for the log.
        bus: Counts the failures of listeners.
    """

    __slots__ = ("_bus", "_has_failed", "_listen", "_log", "_run")

    def __init__(self, listen: Callable[[AgentEvent], None], run: str, bus: Bus, log: RedactedLog) -> None:
        self._listen = listen
        self._run = run
        self._bus = bus
        self._log = log
        self._has_failed = False

    def __call__(self, event: AgentEvent) -> None:
        try:
            self._listen(event)
        except (Exception, asyncio.CancelledError) as error:  # it cannot be cancelled, because it does not await
            self._bus.failures += 1
            if not self._has_failed:
                self._has_failed = True
                self._log.error("on_event of run %s failed. The run goes on. This is said once for each run", self._run, error=error)
