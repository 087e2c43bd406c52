"""Print a running tool's output to standard error as it arrives, and a spinner while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from rich.text import Text

from callgate._call_summary import body_of
from callgate._terminal_text import one_line, printable
from callgate.cli._console import console
from callgate.cli._folded_output import FoldedOutput
from callgate.events import Bus, Event, Progress

__all__ = ["Progressed"]

_SILENCE_S = 0.4


class Progressed:
    """Print the progress of running calls from an engine's bus while the context is entered.

    Args:
        bus: The engine's bus.
        result_command: Returns the command that prints a call's whole result, or a text that says it is not kept.
        quiet: Print nothing.
    """

    def __init__(self, bus: Bus, result_command: Callable[[str], str], *, quiet: bool) -> None:
        self._bus = bus
        self._quiet = quiet
        self._console = console()
        self._spinner = self._console.status("")
        self._timer: asyncio.TimerHandle | None = None
        self._result_command = result_command
        self._output: dict[str, FoldedOutput] = {}

    def __enter__(self) -> Self:
        self._end = (
            self._bus.subscribe(self._handle_event, "call.started", "call.progress", "call.attempt_failed") if not self._quiet else None
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._end is not None:
            self._end()
        if self._timer is not None:
            self._timer.cancel()
        self._spinner.stop()
        for call, output in self._output.items():
            left_out, tail = output.end()
            if left_out:
                self._show([f"… {left_out:,} more lines; the whole result: {self._result_command(call)}"])
            self._show(tail)

    def _show(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(Text(printable(line), style="dim"))

    def _handle_event(self, topic: str, item: object) -> None:
        if isinstance(item, Progress):
            self._show(self._output.setdefault(item.call, FoldedOutput()).take(item.text))
        elif isinstance(item, Event):
            body = body_of(item)
            if topic == "call.started":
                self._start_spinner_soon(f"{one_line(str(body.get('tool', '')))} runs, attempt {item.attempt}, Ctrl-C ends it")
            else:
                self._console.print(Text(f"attempt {item.attempt} failed: {one_line(str(body.get('error', '')))}", style="yellow"))

    def _start_spinner_soon(self, line: str) -> None:
        """Show the spinner if the tool prints nothing for a moment and standard error is a terminal."""
        if self._console.is_terminal and self._timer is None:
            self._spinner.update(Text(line, style="dim"))
            self._timer = asyncio.get_running_loop().call_later(_SILENCE_S, self._spinner.start)
