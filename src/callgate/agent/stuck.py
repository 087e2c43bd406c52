"""Notice a model that goes round in circles: the same call with the same result, again and again, alone or in turns with another.

First the result carries a hint, then the call is refused, then the turn ends. A call whose result changes is progress and starts anew. Two
calls are the same where their tool gets the same arguments, however the model writes them. What was counted survives a wait for a human.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec import Struct

from callgate._json import canonical, decode
from callgate.agent.results import Repeat
from callgate.calls import ToolResult
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


_Asked = tuple[str, bytes]
"""A call: the tool's name, and the final arguments as canonical JSON."""
_REFUSED = "stuck_loop"


class StuckGuard:
    """What one turn has asked for, and whether anything came of it.

    Args:
        limits: When what happens.
        asked: What a call asks for that has not been made; None where it is not valid. Only called once a refusal is near.
        before: What was counted before the turn waited.
    """

    def __init__(self, limits: StuckLimits, asked: Callable[[ToolCall], _Asked | None], before: Sequence[Repeat] = ()) -> None:
        self._limits = limits
        self._asked = asked
        self._seen: OrderedDict[_Asked, Repeat] = OrderedDict(((one.tool, one.arguments), one) for one in before)
        self._most = max((one.times for one in before), default=0)
        self.gave_up = ""
        """Why the turn should end; empty while it need not."""
        for one in before:
            self._give_up(one)

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """What was counted so far, the oldest first."""
        return tuple(self._seen.values())

    def refusal(self, call: ToolCall) -> CallDenied | None:
        """Why this call is not run: it has been, with the same result, too often."""
        if self._most < self._limits.refuse - 1:
            return None
        seen = self._seen.get(self._of(call))
        if seen is None or seen.times < self._limits.refuse - 1:
            return None
        return CallDenied(
            f"It was not run: {seen.tool} has been called {seen.times} times with these arguments, and the result was the same each time."
            " Use that result, call it with other arguments, or answer.",
            code=_REFUSED,
        )

    def told(self, calls: Sequence[ToolCall], results: Sequence[ToolResult | None], finals: Sequence[bytes]) -> dict[int, str]:
        """Take note of a message's results; returns the hints that are due, by the call's place.

        Args:
            calls: The message's.
            results: One for each; None for one that has none.
            finals: The arguments that each tool got, as canonical JSON; empty where it got none.
        """
        hints: dict[int, str] = {}
        for place, result in enumerate(results):
            if result is not None:
                seen = self._note(self._made(calls[place], result, finals[place]), result)
                if seen.times >= self._limits.hint and result.code != _REFUSED:
                    hints[place] = _hint(seen)
        return hints

    def _made(self, call: ToolCall, result: ToolResult, final: bytes) -> _Asked:
        if result.code == _REFUSED:
            return self._of(call)
        return (result.name, final) if final else _as_written(call)

    def _of(self, call: ToolCall) -> _Asked:
        return self._asked(call) or _as_written(call)

    def _note(self, asked: _Asked, result: ToolResult) -> Repeat:
        before = self._seen.pop(asked, None)
        said: tuple[str, str | None, str] | None = (result.status, result.code, result.text)
        if result.code == _REFUSED:
            said = before.said if before is not None else None
        times = before.times + 1 if before is not None and before.said == said else 1
        seen = self._seen[asked] = Repeat(tool=asked[0], arguments=asked[1], said=said, times=times)
        if times > self._most:
            self._most = times
            self._give_up(seen)
        if len(self._seen) > self._limits.remembered:
            self._seen.popitem(last=False)
        return seen

    def _give_up(self, seen: Repeat) -> None:
        if seen.times >= self._limits.stop:
            self.gave_up = f"{seen.tool} was called {seen.times} times with the same arguments and the same result; the turn gets nowhere."


def _as_written(call: ToolCall) -> _Asked:
    """A call that no tool takes: the same JSON is the same call, and the same text where it is no JSON."""
    try:
        return call.name, canonical(decode(call.arguments))
    except (ValueError, RecursionError):
        return call.name, call.arguments.encode("utf-8", "surrogatepass")


def _hint(seen: Repeat) -> str:
    return (
        f"This is the {_ordinal(seen.times)} time that {seen.tool} was called with these arguments, and the result is the same."
        " Calling it again will not change that."
    )


def _ordinal(number: int) -> str:
    return f"{number}{'th' if 10 <= number % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
