"""The far side of attempts: run in worker processes, each stopped for certain, and only tools that this side serves.

A call names its tool as `module:qualname`. Whoever could name anything could run anything, so what is served is a list, and this side never
imports what a message names. Must not know how messages travel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._clock import SystemClock
from callgate._limits import Limits
from callgate._runners.failures import not_started
from callgate._runners.process import ProcessLimits, ProcessRunner, process_target
from callgate._runners.process.runner import AttemptRequest
from callgate.protocols import Execution
from callgate.remote.messages import Ended, Late, OutputPiece, Start
from callgate.tools import Tool

__all__ = ["Workers"]


class Workers:
    """Runs the calls of other machines in processes of this one. Belongs to one event loop.

    Args:
        tools: What is served.
        limits: `result_bytes` bounds what is sent back, also where the near side would take more.
        process_limits: Bounds of the worker processes; None: the defaults.

    Raises:
        UsageError: A tool cannot be found by name, or process tools do not run on this system.
    """

    def __init__(self, tools: Iterable[Tool], *, limits: Limits | None = None, process_limits: ProcessLimits | None = None) -> None:
        self._limits = limits or Limits()
        self._cpu_s = process_limits.cpu_s if process_limits is not None else None
        self._served = {process_target(tool) for tool in tools}
        self._runner = ProcessRunner(self._limits, SystemClock(), process_limits)

    async def run(self, start: Start, kill: AbortSignal, say: Callable[[OutputPiece | Late], None]) -> Ended:
        """Run one attempt and always come back, at the latest a second after its deadline or the kill. Cancelling this is a kill.

        Args:
            kill: Fires when the near side says `Stop`.
            say: Takes progress and late answers, to be sent in this order; must not wait.
        """
        if start.call.target not in self._served:
            return Ended.of(start.id, self._refusal(start))
        call = replace(
            start.call,
            deadline=time.monotonic() + start.timeout_s,
            cpu_s=self._cpu_s,
            max_bytes=min(start.call.max_bytes, self._limits.result_bytes),
        )
        work = AttemptRequest(
            call=call,
            timeout_s=start.timeout_s,
            grace_s=start.grace_s,
            kill=kill,
            report=_Pieces(start.id, say),
            on_late=partial(_say_late, start.id, say),
        )
        return Ended.of(start.id, await self._runner.carry_out(work))

    def _refusal(self, start: Start) -> Execution:
        served = ", ".join(sorted(self._served)) or "nothing"
        return not_started(f"the far side does not serve {start.call.target}; it serves {served}. Start it with this tool")

    async def close(self) -> None:
        """End everything that runs, in bounded time. Idempotent."""
        await self._runner.close()


class _Pieces:
    """Numbers the progress of one attempt."""

    def __init__(self, id: str, say: Callable[[OutputPiece], None]) -> None:
        self._id = id
        self._say = say
        self._seq = 0

    def __call__(self, text: str, stream: str) -> None:
        self._seq += 1
        self._say(OutputPiece(id=self._id, seq=self._seq, text=text, stream=stream))


def _say_late(id: str, say: Callable[[Late], None], execution: Execution) -> None:
    say(Late.of(id, execution))
