"""The time of one call in which a human is asked, which does not count as time of the tool.

A tool is given seconds to do its work; a human who is asked in the middle of it needs minutes. So the deadlines of the call stop while
a human is asked, and then continue with the time that was left. The total extension is bounded. Knows neither deadlines nor runners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

__all__ = ["HumanTime"]


class HumanTime(Struct, eq=False):
    """The time in which a human is asked during one call."""

    limit_s: float
    """The most seconds of all questions of the call together."""
    monotonic: Callable[[], float]
    """The clock, in seconds."""
    asked: bool = False
    """Whether a human has been asked."""
    _asking: int = 0
    _since: float = 0.0
    _passed_s: float = 0.0
    _on_change: Callable[[], None] | None = None

    @property
    def passed_s(self) -> float:
        """The seconds that have passed with questions, at most the limit."""
        running_s = self.monotonic() - self._since if self._asking else 0.0
        return min(self._passed_s + running_s, self.limit_s)

    @property
    def left_s(self) -> float:
        return self.limit_s - self.passed_s

    @property
    def is_asking(self) -> bool:
        return self._asking > 0

    def watch(self, on_change: Callable[[], None] | None) -> None:
        """Call `on_change` when the first of the running questions begins, and when the last one has ended."""
        self._on_change = on_change

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Stop the call's deadlines during the block. Blocks may overlap. Enter it on the engine's event loop."""
        self.asked = True
        self._asking += 1
        if self._asking == 1:
            self._since = self.monotonic()
            self._tell()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._passed_s += self.monotonic() - self._since
                self._tell()

    def _tell(self) -> None:
        if self._on_change is not None:
            self._on_change()
