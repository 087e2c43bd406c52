"""Draw what is running below the last line of a terminal, one row each, and remove the rows when it ends.

Elsewhere than at a terminal nothing is drawn. Knows no event of a run; `_run_screen` says what is running.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from callgate._terminal_text import one_line

__all__ = ["LiveRows"]

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES = "|/-\\"


class LiveRows:
    """The rows below the last line: the running calls, or what the run waits for while none runs."""

    def __init__(self, console: Console) -> None:
        self.is_possible = console.is_terminal and not console.is_dumb_terminal
        """Whether rows can be drawn and removed."""
        self._console = console
        self._live: Live | None = None
        self._waiting = ""
        """What the run waits for, while no call runs."""
        self._since = 0.0
        self._running: dict[str, tuple[float, Callable[[], str]]] = {}
        """For each call, when it started, and a function that returns its row."""

    def start(self, call: str, describe: Callable[[], str]) -> None:
        """Add the row of a call. It is drawn with the next `draw`."""
        self._running[call] = (time.monotonic(), describe)

    def end(self, call: str) -> None:
        """Remove the row of a call."""
        self._running.pop(call, None)

    def wait_for(self, what: str) -> None:
        """Set what the run waits for; empty if for nothing."""
        if what != self._waiting:
            self._waiting, self._since = what, time.monotonic()

    def draw(self) -> None:
        """Draw the rows, or remove them if nothing is running. While they are drawn, they follow the changes."""
        if not self.is_possible:
            return
        if not self._running and not self._waiting:
            self.stop()
        elif self._live is None:
            rows = _Rows(self._rows)
            self._live = Live(
                get_renderable=lambda: rows,
                console=self._console,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def stop(self) -> None:
        """Remove the rows until the next `draw`."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def clear(self) -> None:
        """Remove the rows, and wait for nothing any more."""
        self.stop()
        self._waiting = ""

    def _rows(self) -> list[tuple[str, float]]:
        """Return what is running now, and for how many seconds."""
        now = time.monotonic()
        running = [(describe(), now - since) for since, describe in [*self._running.values()]]
        return running or ([(self._waiting, now - self._since)] if self._waiting else [])


class _Rows:
    """Renders what is running, one row each, cut to the terminal's width; redrawn several times a second.

    Args:
        rows: Returns what is running now, and for how many seconds.
    """

    def __init__(self, rows: Callable[[], list[tuple[str, float]]]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        frames = _PLAIN_FRAMES if options.ascii_only else _FRAMES
        sign = frames[int(time.monotonic() * 8) % len(frames)]
        for line, seconds in self._rows()[: max(1, options.max_height - 2)]:
            tail = f"  {seconds:.0f} s" if seconds >= 1 else ""
            text = Text(f"{sign} {one_line(line, max(8, options.max_width - len(tail) - 3))}{tail}", style="dim", no_wrap=True)
            text.truncate(options.max_width, overflow="ellipsis")
            yield text
