"""Notice a model that goes round in circles: the same call with the same result, again and again, alone or in turns with another.

First the result carries a hint, then the call is refused, then the turn ends. A call whose result changes is progress and starts anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from callgate.calls import Text, ToolResult
from callgate.errors import CallDenied
from callgate.messages import ToolCall

__all__ = ["StuckGuard", "StuckLimits"]


class StuckLimits(Struct, frozen=True, kw_only=True):
    """After how many identical calls with identical results what happens."""

    hint: int = 3
    """The result says so to the model."""
    refuse: int = 5
    """The call is not run again."""
    stop: int = 7
    """The turn ends."""
    remembered: int = 64
    """Different calls that are kept in mind, the oldest going first."""


_Asked = tuple[str, str]
"""A call: name and arguments, as the model wrote them."""
_Said = tuple[str, str | None, str]
"""A result as the model sees it: status, code, text."""


class _Seen:
    __slots__ = ("said", "times")

    def __init__(self) -> None:
        self.said: _Said | None = None
        self.times = 0


class StuckGuard:
    """What one turn has asked for, and whether anything came of it."""

    def __init__(self, limits: StuckLimits) -> None:
        self._limits = limits
        self._seen: OrderedDict[_Asked, _Seen] = OrderedDict()
        self.gave_up = ""
        """Why the turn should end; empty while it need not."""

    def refusal(self, call: ToolCall) -> CallDenied | None:
        """Why this call is not run: it has been, with the same result, too often."""
        seen = self._seen.get((call.name, call.arguments))
        if seen is None or seen.times < self._limits.refuse - 1:
            return None
        return CallDenied(
            f"It was not run: {call.name} has been called {seen.times} times with these arguments, and the result was the same each time."
            " Use that result, call it with other arguments, or answer.",
            code="stuck_loop",
        )

    def told(self, calls: Sequence[ToolCall], results: Sequence[ToolResult | None]) -> list[ToolResult | None]:
        """Take note of a message's results; returns them, with a hint where one is due."""
        return [None if result is None else self._note(call, result) for call, result in zip(calls, results, strict=True)]

    def _note(self, call: ToolCall, result: ToolResult) -> ToolResult:
        asked = (call.name, call.arguments)
        seen = self._seen.get(asked)
        if seen is None:
            seen = self._seen[asked] = _Seen()
            if len(self._seen) > self._limits.remembered:
                self._seen.popitem(last=False)
        else:
            self._seen.move_to_end(asked)
        if result.code != "stuck_loop":
            said = (result.status, result.code, result.text)
            seen.times = seen.times if seen.said == said else 0
            seen.said = said
        seen.times += 1
        if seen.times >= self._limits.stop:
            self.gave_up = f"{call.name} was called {seen.times} times with the same arguments and the same result; the turn gets nowhere."
        if seen.times < self._limits.hint or result.code == "stuck_loop":
            return result
        hint = f"This is the {_ordinal(seen.times)} time that {call.name} was called with these arguments, and the result is the same."
        return replace(result, content=(*result.content, Text(text=f"{hint} Calling it again will not change that.")))


def _ordinal(number: int) -> str:
    return f"{number}{'th' if 10 <= number % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
