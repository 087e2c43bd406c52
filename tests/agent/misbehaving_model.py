"""A model for tests that yields any sequence of events, including sequences that break the protocol of models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from callgate.calls import Text
from callgate.models.model_events import ModelEvent, TextDelta
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ModelRequest
from tests.agent.scripted_model import ends

__all__ = ["Lying", "done", "lies"]


class Lying:
    """A model that yields the events that the test defines, one generator per pass."""

    provider = "lying"
    name = "liar-1"
    native_tools = True

    def __init__(self, *answers: Callable[[StreamingContext], AsyncIterator[ModelEvent]]) -> None:
        self._answers = list(answers)

    def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        return self._answers.pop(0)(context)


def lies(*events: ModelEvent) -> Callable[[StreamingContext], AsyncIterator[ModelEvent]]:
    """Return a generator function that yields these events in one pass."""

    async def stream(context: StreamingContext) -> AsyncIterator[ModelEvent]:
        for event in events:
            yield event

    return stream


done = lies(TextDelta("done"), ends(Text(text="done")))
