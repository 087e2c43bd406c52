"""Runners run a tool's code: in the caller's task (`inline_runner`), in a thread (`thread_runner`), or in a worker process (`process`).

All implement `callgate.protocols.Runner` and pass one contract suite. Threads and processes are imported when the first tool needs them.
`coroutine_driver`, `interruptible_wait`, `abandoned_code` and `started_tasks` bound what tools do; `offload_to_threads` runs other blocking
work in threads.

`thread_pool` has the threads, and `progress_relay` brings progress from them to the event loop. `return_values` reads what a tool returned
or raised, with `returned_content`, `content_blocks`, `result_wrappers`, `exception_results` and `tracebacks`; `output_limits` limits what
it printed.
`await_host_code` awaits the host's own coroutines, and `blocking_steps` warns of async tools that block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from callgate._clock import Clock
from callgate._engine_limits import Limits
from callgate._runners.abandoned_code import AbandonedCalls, OnLate
from callgate._runners.inline_runner import InlineRunner
from callgate.errors import UsageError
from callgate.protocols import DistantRunner, InstantRunner, Runner, Start
from callgate.tools.tool_declaration import RunnerName, Tool

if TYPE_CHECKING:
    from callgate._runners.process import ProcessLimits, ProcessRunner
    from callgate._runners.thread_runner import ThreadRunner

__all__ = ["OWN_RUNNERS", "InlineRunner", "OnLate", "Runners"]


log = logging.getLogger("callgate")
_CLOSE_S = 5.0
OWN_RUNNERS = ("inline", "thread", "process")


class Runners:
    """The runners of one engine, each created when it is first needed.

    Args:
        limits: The engine's bounds.
        clock: Provides identifiers.
        process_limits: Bounds of worker processes; None: the defaults.
        own: The host's runners, by the name that tools use. The built-in names are reserved.
        on_late: Called with the uid and the execution if a tool returns after its call has ended.
        on_gone: Called with the uid of a call that had ended when the last of its code has ended.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Clock,
        *,
        process_limits: ProcessLimits | None = None,
        on_late: OnLate | None = None,
        on_gone: Callable[[str], None] | None = None,
        own: Mapping[str, Runner] | None = None,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._process_limits = process_limits
        self._on_late = on_late
        self.abandoned_calls = AbandonedCalls(on_gone)
        """Calls that have ended but whose code still runs in this process."""
        self._made: dict[RunnerName, InlineRunner | ThreadRunner | ProcessRunner] = {}
        self._own = dict(own or {})
        self._starts: dict[RunnerName, Start] = {}
        if taken := self._own.keys() & set(OWN_RUNNERS):
            raise UsageError(f"A runner cannot be called {', '.join(sorted(taken))}: that is one of callgate's own. Choose another name.")
        self._distant = [runner for runner in self._own.values() if isinstance(runner, DistantRunner)]
        for runner in self._distant:
            runner.on_late = on_late

    def start(self, name: RunnerName) -> Start:
        """Return the function that starts an attempt on the named runner; raise as `pick` does."""
        start = self._starts.get(name)
        if start is None:
            runner = self.pick(name)
            start = self._starts[name] = runner.begin if isinstance(runner, InstantRunner) else runner.run
        return start

    def claims(self, name: RunnerName) -> bool:
        """Return whether the named runner claims an attempt itself when it begins; see `RunRequest.claim`."""
        return bool(getattr(self.pick(name), "claims", False))

    def pick(self, name: RunnerName) -> Runner:
        """Return the named runner.

        Raises:
            UsageError: There is no such runner, or process tools do not run on this system.
        """
        found: Runner | None = self._made.get(name) or self._own.get(name)
        if found is None:
            found = self._made[name] = self._make(name)
        return found

    def _make(self, name: RunnerName) -> InlineRunner | ThreadRunner | ProcessRunner:
        match name:
            case "inline":
                return InlineRunner(self._on_late, self.abandoned_calls)
            case "thread":
                from callgate._runners.thread_runner import ThreadRunner

                return ThreadRunner(self._limits, self._on_late, self.abandoned_calls)
            case "process":
                from callgate._runners.process import ProcessRunner

                return ProcessRunner(self._limits, self._clock, self._process_limits, self._on_late)
            case _:
                raise UsageError(f"There is no runner '{name}'. This engine has {', '.join([*OWN_RUNNERS, *self._own])}.")

    def check(self, name: RunnerName, tool: Tool) -> None:
        """Check, when a tool is registered, that the named runner can start it.

        Raises:
            UsageError: There is no such runner, a worker process could not import the tool, or process tools do not run on this system.
        """
        if name not in OWN_RUNNERS:
            runner = self.pick(name)
            if isinstance(runner, DistantRunner):
                runner.check(tool)
        if name == "process":
            from callgate._runners.process import process_target

            self.pick(name)
            process_target(tool)

    @property
    def abandoned(self) -> int:
        """The number of coroutines, tasks and threads that still run because they could not be stopped."""
        return sum(runner.abandoned for runner in (*self._made.values(), *self._distant))

    @property
    def late(self) -> int:
        """The number of results that arrived after their call had ended."""
        return sum(runner.late for runner in (*self._made.values(), *self._distant))

    async def close(self) -> None:
        """Close all runners in bounded time. Idempotent. A runner that fails to close does not keep the others from closing."""
        closing = [asyncio.ensure_future(_close(runner)) for runner in (*self._made.values(), *self._own.values())]
        _, stuck = await asyncio.wait(closing, timeout=_CLOSE_S) if closing else ((), ())
        for task in stuck:
            task.cancel()
            log.error("A runner's close did not end within %s s, and is not waited for: %r", _CLOSE_S, task)


async def _close(runner: Runner) -> None:
    try:
        await runner.close()
    except (Exception, SystemExit) as error:
        log.error("The runner %s could not be closed: %s: %s", type(runner).__name__, type(error).__name__, error)
