"""A queue of events between a run and a consumer that may be slower.

Nothing is lost and nothing blocks. While the consumer lags, adjacent text deltas are joined, so that the queue never holds much more than
the text itself.
"""

from __future__ import annotations

import asyncio
from collections import deque

from callgate.agent.run_events import AgentEvent
from callgate.models.model_events import ArgumentsDelta, ReasoningDelta, TextDelta

__all__ = ["EventQueue"]

_JOINED_CHARS = 2_048


class EventQueue:
    """A queue for one producer and one consumer on one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[AgentEvent] = deque()
        self._ended = False
        self._woken = asyncio.Event()

    def put(self, event: AgentEvent) -> None:
        last = self._waiting[-1] if self._waiting else None
        joined = _join(last, event)
        if joined is None:
            self._waiting.append(event)
        else:
            self._waiting[-1] = joined
        self._woken.set()

    def end(self) -> None:
        self._ended = True
        self._woken.set()

    def __aiter__(self) -> EventQueue:
        return self

    async def __anext__(self) -> AgentEvent:
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            self._woken.clear()
            await self._woken.wait()
        return self._waiting.popleft()


def _join(last: AgentEvent | None, event: AgentEvent) -> AgentEvent | None:
    """Return two adjacent deltas as one if they are of the same kind and the first is short, because each join copies it; else None."""
    if not isinstance(last, (TextDelta, ReasoningDelta, ArgumentsDelta)) or len(last.text) > _JOINED_CHARS:
        return None
    if isinstance(event, TextDelta) and isinstance(last, TextDelta):
        return TextDelta(last.text + event.text)
    if isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
        return ReasoningDelta(last.text + event.text)
    if isinstance(event, ArgumentsDelta) and isinstance(last, ArgumentsDelta) and event.position == last.position:
        return ArgumentsDelta(event.position, last.text + event.text)
    return None
