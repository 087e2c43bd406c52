"""Handle the signals that interrupt or end a command.

Ctrl-C (SIGINT) during a run requests to stop the run. SIGTERM and SIGHUP end the command, after its running calls are
ended and the terminal is restored. Knows nothing of runs or calls.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Literal, NoReturn, TypeVar

__all__ = ["TERMINATING", "Interrupts", "exit_code_of", "interruptible", "remembering_interrupts", "unwinding_on_termination"]

T = TypeVar("T")
TERMINATING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def exit_code_of(number: int) -> int:
    """Return the exit code for a command that was ended by this signal: 128 + its number."""
    return 128 + number


class Interrupts:
    """Counts how often Ctrl-C was pressed in this turn, and stores the signal that ends the command."""

    def __init__(self) -> None:
        self.count = 0
        """How often Ctrl-C was pressed in this turn."""
        self.signal = 0
        """The number of the signal that ends the command; 0 if none arrived."""
        self._came = asyncio.Event()

    def begin_turn(self) -> None:
        """Reset the count of Ctrl-C, unless a signal that ends the command has arrived."""
        if not self.signal:
            self.count = 0
            self._came.clear()

    def interrupt(self) -> Literal["stop", "kill"]:
        """Count one Ctrl-C and return its meaning: `stop` for the first one of the turn, `kill` for later ones."""
        self.count += 1
        self._came.set()
        return "stop" if self.count == 1 else "kill"

    def terminate(self, number: int) -> None:
        self.count += 1
        self.signal = self.signal or number
        self._came.set()

    async def unless(self, work: Coroutine[Any, Any, T], *events: asyncio.Event) -> T | None:
        """Await `work` and return its result.

        If a signal arrives or an event is set first, cancel `work` and return None.
        """
        task = asyncio.ensure_future(work)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._came, *events)]
        try:
            await asyncio.wait([task, *waits], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for one in (task, *waits):
                one.cancel()
            await asyncio.gather(task, *waits, return_exceptions=True)


@contextmanager
def interruptible(interrupt: Callable[[], None], terminate: Callable[[int], None]) -> Iterator[None]:
    """Call `interrupt` on Ctrl-C and `terminate` on SIGTERM or SIGHUP while the block runs. Both run on the event loop.

    SIGTERM and SIGHUP stay ignored if they were ignored before, such as SIGHUP under `nohup`. On a system where event
    loops cannot handle signals, this does nothing.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *TERMINATING)}
    handled = [number for number, handler in before.items() if number == signal.SIGINT or handler is not signal.SIG_IGN]
    with suppress(NotImplementedError):
        for number in handled:
            loop.add_signal_handler(number, *((interrupt,) if number == signal.SIGINT else (terminate, number)))
    try:
        yield
    finally:
        with suppress(NotImplementedError):
            for number in handled:
                loop.remove_signal_handler(number)
                signal.signal(number, before[number])


@contextmanager
def remembering_interrupts() -> Iterator[Callable[[], bool]]:
    """Raise KeyboardInterrupt on Ctrl-C while the block runs. Yield a function that returns whether Ctrl-C was pressed.

    Python drops an exception that is raised inside a finaliser or a C library's callback. A loop that relies on the
    exception alone might therefore never end; it can call the function.
    """
    came = False

    def remember(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    handled = before is signal.default_int_handler
    try:
        if handled:
            signal.signal(signal.SIGINT, remember)
    except ValueError:  # not in the main thread
        handled = False
    try:
        yield lambda: came
    finally:
        if handled:
            signal.signal(signal.SIGINT, before)


@contextmanager
def unwinding_on_termination() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP while the block runs.

    The exception lets `finally` blocks restore the cursor and close files. The second signal is ignored, because another exception would
    interrupt these blocks: a supervisor that signals the process and its group sends two. Further ones raise again.
    """
    came = 0

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came += 1
        if came != 2:
            raise SystemExit(exit_code_of(number))

    before = {number: signal.getsignal(number) for number in TERMINATING}
    handled = [number for number, handler in before.items() if handler == signal.SIG_DFL]
    try:
        for number in handled:
            signal.signal(number, leave)
    except ValueError:  # not in the main thread: another program owns the handlers
        handled = []
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])
