"""Warn once for each async tool that blocks the event loop beyond its timeout.

A coroutine can only be cancelled at an `await`. Blocking code runs on after its deadline, and delays all other calls. The time between two
awaits of the tool's own coroutine is measured, so code of other tools does not count. Cancels nothing.
"""

from __future__ import annotations

import logging
from typing import Final

from callgate.protocols import RunRequest

__all__ = ["HELD_UP_S", "BlockingSteps"]

log = logging.getLogger("callgate")

HELD_UP_S: Final = 0.1
"""How much longer than the timeout a step may end, and how long it may be, before its tool is warned about."""


class BlockingSteps:
    """The tools of one runner that were warned about."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warn_if_late(self, request: RunRequest, seconds: float) -> None:
        """Warn about a tool of which one step took these seconds and ended after the deadline.

        Args:
            request: The attempt.
            seconds: The time between two awaits.
        """
        human_time, tool = request.context.human_time, request.approved.call.tool
        if seconds < HELD_UP_S or tool.layer == "mcp" or tool.identity in self._warned:
            return
        if human_time is not None and human_time.is_asking:
            return
        self._warned.add(tool.identity)
        log.warning(
            "Tool %s (%s) held up the event loop for %.3g s, beyond its timeout of %.6g s: its code works without `await`, as time.sleep, a"
            " blocking client or a long computation does. Nothing can end such code, and all other calls wait for it. Write it as a plain"
            ' function, which runs in a thread, and for code that must be stoppable say @tool(runner="process"). This is said once for each'
            " tool.",
            *(tool.name, tool.tool.where(), seconds, request.timeout_s),
        )
