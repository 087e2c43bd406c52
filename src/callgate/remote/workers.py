"""The far side of attempts: run them in worker processes that can be stopped, and only the tools that this side serves.

A call names its tool as `module:qualname`. The served tools are a fixed list, and nothing that a message names is imported, because
otherwise any code could be run. Must not know how messages are transported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._clock import SystemClock
from callgate._engine_limits import Limits
from callgate._runners.exception_results import execution_not_started
from callgate._runners.process import ProcessLimits, ProcessRunner, process_target
from callgate._runners.process.process_runner import AttemptRequest
from callgate.protocols import Execution
from callgate.remote.messages import Ended, Late, OutputPiece, Start
from callgate.tools import Tool

__all__ = ["Workers"]


class Workers:
    """Runs the calls of other machines in worker processes. Belongs to one event loop.

    Args:
        tools: The tools to serve.
        limits: `result_bytes` limits results, also if the near side accepts larger ones.
        process_limits: Limits of the worker processes; None for the defaults.

    Raises:
        UsageError: A tool cannot be found by name, or process tools do not run on this system.
    """

    def __init__(self, tools: Iterable[Tool], *, limits: Limits | None = None, process_limits: ProcessLimits | None = None) -> None:
        self._limits = limits or Limits()
        self._cpu_s = process_limits.cpu_s if process_limits is not None else None
        self._served = {process_target(tool) for tool in tools}
        self._runner = ProcessRunner(self._limits, SystemClock(), process_limits)

    async def run(self, start: Start, kill: AbortSignal, say: Callable[[OutputPiece | Late], None]) -> Ended:
        """Run one attempt and return its end, at most a second after its deadline or kill. Cancelling kills the attempt.

        Args:
            kill: Fires when the near side sends `Stop`.
            say: Called with progress and late answers, to be sent in this order; must not wait.
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
        return Ended.of(start.id, await self._runner.run_attempt(work))

    def _refusal(self, start: Start) -> Execution:
        served = ", ".join(sorted(self._served)) or "nothing"
        return execution_not_started(f"the far side does not serve {start.call.target}; it serves {served}. Start it with this tool")

    async def close(self) -> None:
        """End all attempts, in bounded time. Idempotent."""
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
