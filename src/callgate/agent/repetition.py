"""Detect a model that repeats the same call with the same result, also if it alternates between several calls.

First the result carries a hint, then the call is refused. If the results are failures, the turn ends after further
repetitions. Results that are data never end the turn, because "found nothing" is a valid answer, however often it is
returned. In a run with strict rules no repeated result ends the turn; those rules alone decide when it ends.

A call with a changed result counts as progress, and its count starts again. Two calls are the same if their tool gets
the same arguments, however the model writes them. The counts are kept while a run waits for a human.

A model sees no results while it writes a message. Identical calls within one message therefore do not end the turn: as
many of them run as the limits allow, and the call that would end the turn is refused.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from callgate._json import canonical, decode
from callgate._option_checks import Count, Options
from callgate.agent.run_result import Repeat
from callgate.calls import ToolResult
from callgate.content_parts import Part, Text, data_of, part_text
from callgate.errors import CallRepeated
from callgate.loop_decision import REPEATED
from callgate.messages import ToolCall

__all__ = ["StuckGuard", "StuckLimits"]


class StuckLimits(Options, frozen=True, kw_only=True):
    """The numbers of identical calls with identical results at which the loop reacts."""

    hint: Count = 3
    """From this number on, the result tells the model that it repeats itself."""
    refuse: Count = 5
    """From this number on, the call is refused and not run."""
    stop: Count = 7
    """At this number, the turn ends if the results are failures. Results that are data, such as an empty search,
    never end it.
    """
    remembered: Count = 64
    """The maximum number of different calls that are remembered; the oldest is dropped first."""


_CallKey = tuple[str, bytes]
"""A call: the tool's name, and the final arguments as canonical JSON."""


class StuckGuard:
    """Counts the repeated calls of one turn.

    Args:
        limits: The numbers of repetitions at which the guard reacts.
        identify: Returns the tool's name and the final arguments of a call that has not run; None if the call is invalid.
            Called only when a call is close to being refused.
        before: The counts from before the turn waited for a human.
        may_end: Whether repeated failures may end the turn.
    """

    def __init__(
        self, limits: StuckLimits, identify: Callable[[ToolCall], _CallKey | None], before: Sequence[Repeat] = (), *, may_end: bool = True
    ) -> None:
        self._limits = limits
        self._may_end = may_end
        self._identify = identify
        self._seen: OrderedDict[_CallKey, Repeat] = OrderedDict(((one.tool, one.arguments), one) for one in before)
        self._most = max((one.times for one in before), default=0)
        self._place = -1
        self._uncounted: list[ToolCall] = []
        """Calls of the current message that are not counted yet, because no call is close to a limit."""
        self._in_message: Counter[_CallKey] = Counter()
        """The number of identical calls in the current message. Only counted when a call is close to a limit."""
        self.gave_up = ""
        """The reason to end the turn; empty if it may continue."""
        for one in before:
            self._give_up(one)

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """The counts so far. The call that was counted least recently comes first."""
        return tuple(self._seen.values())

    def refusal(self, call: ToolCall, place: int) -> CallRepeated | None:
        """Return the error that refuses a call because it was repeated too often; None if the call may run.

        Args:
            call: The call as the model wrote it.
            place: The index of the call in its message.
        """
        if place <= self._place:
            self._uncounted.clear()
            self._in_message.clear()
        self._place = place
        near, many = self._most >= self._limits.refuse - 1, self._most + place >= self._limits.stop - 1
        if not (near or many):
            self._uncounted.append(call)
            return None
        key = self._key(call)
        seen, here = self._seen.get(key), self._count(key)
        before = seen.times if seen is not None else 0
        if before >= self._limits.refuse - 1:
            return _refusal(
                f"{key[0]} has been called {before} times with these arguments, and the result was the same each time."
                " Use that result, call it with other arguments, or answer.",
                seen,
            )
        if here and before + here >= self._limits.stop - 1:
            return _refusal(
                f"{key[0]} stands {_times(here)} before it in your message with the same arguments."
                " Look at the results first, and send it again if it is still needed.",
                seen,
            )
        return None

    def count_results(self, calls: Sequence[ToolCall], results: Sequence[ToolResult | None], finals: Sequence[bytes]) -> dict[int, str]:
        """Count the results of a message. Return the hints that are due, by the call's index in the message.

        Args:
            calls: The calls of the message.
            results: The result of each call; None for a call without a result.
            finals: The arguments that each tool got, as canonical JSON; empty if the tool got none.
        """
        self._place = -1
        self._uncounted.clear()
        self._in_message.clear()
        hints: dict[int, str] = {}
        due = self._calls_to_refuse() if self._most >= self._limits.refuse - 1 else ()
        for place, result in enumerate(results):
            if result is not None:
                final = finals[place]
                made = (result.name, final) if final and result.code != REPEATED else self._key_of_refused(calls[place], result)
                if result.code == REPEATED and made not in due:
                    continue  # refused for its own message alone
                seen = self._note(made, result)
                if seen.times >= self._limits.hint and result.code != REPEATED:
                    hints[place] = _hint(seen)
        return hints

    def _calls_to_refuse(self) -> set[_CallKey]:
        """Return the calls that are refused because of earlier messages."""
        return {key for key, seen in self._seen.items() if seen.times >= self._limits.refuse - 1}

    def _count(self, key: _CallKey) -> int:
        """Count one more call of the message. Return how many identical calls precede it in the message."""
        for earlier in self._uncounted:
            self._in_message[self._key(earlier)] += 1
        self._uncounted.clear()
        self._in_message[key] += 1
        return self._in_message[key] - 1

    def _key_of_refused(self, call: ToolCall, result: ToolResult) -> _CallKey:
        """Return the identity of a call whose tool got no arguments."""
        return self._key(call) if result.code == REPEATED else _as_written(call)

    def _key(self, call: ToolCall) -> _CallKey:
        return self._identify(call) or _as_written(call)

    def _note(self, key: _CallKey, result: ToolResult) -> Repeat:
        before = self._seen.pop(key, None)
        content = result.content
        text = content[0].text if len(content) == 1 and type(content[0]) is Text else _fingerprint(content)
        said: tuple[str, str | None, str] | None = (result.status, result.code, text)
        is_data = result.status == "ok" or result.failure_class == "tool_declared"
        if result.code == REPEATED:
            said, is_data = (before.said, before.is_data) if before is not None else (None, False)
        times = before.times + 1 if before is not None and before.said == said else 1
        seen = self._seen[key] = Repeat(tool=key[0], arguments=key[1], said=said, times=times, is_data=is_data)
        if times > self._most:
            self._most = times
            self._give_up(seen)
        if len(self._seen) > self._limits.remembered:
            self._seen.popitem(last=False)
        return seen

    def _give_up(self, seen: Repeat) -> None:
        if self._may_end and not seen.is_data and seen.times >= self._limits.stop:
            self.gave_up = f"{seen.tool} was called {seen.times} times with the same arguments and the same result; the turn gets nowhere."


def _fingerprint(content: tuple[Part, ...]) -> str:
    """Return what distinguishes a result's content: its text, and a hash of its images and files."""
    data = hashlib.blake2b("\n".join(map(data_of, content)).encode(), digest_size=16).hexdigest()
    return "\n".join([*map(part_text, content), data])


def _refusal(why: str, seen: Repeat | None) -> CallRepeated:
    return CallRepeated(f"It was not run: {why}", of_data=seen is None or seen.is_data)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _as_written(call: ToolCall) -> _CallKey:
    """Return the identity of a call that cannot be matched to a tool, from its name and its arguments as written.

    Arguments that are valid JSON are compared in canonical form, all others as text.
    """
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
