"""Decode a body with the decoder of an API, in pieces of any size, and inspect the events."""

from __future__ import annotations

from collections.abc import Iterable

from callgate.calls import Text
from callgate.messages import AssistantMessage
from callgate.models.model_events import CallSealed, Finished, ModelEvent, TextDelta
from callgate.models.wire import codec

__all__ = ["calls_of", "finished", "read", "shape", "text_of"]


def read(api: str, body: bytes | Iterable[bytes], *, content_type: str = "", streamed: bool = True) -> list[ModelEvent]:
    """Return every event of one answer."""
    numbers = iter(range(10_000))
    decoder = codec(api).decoder(content_type=content_type, streamed=streamed, new_id=lambda: f"made-{next(numbers)}")
    pieces = [body] if isinstance(body, bytes) else body
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


def finished(events: list[ModelEvent]) -> Finished:
    """Return the last event, and assert that it is the only `Finished`."""
    ends = [event for event in events if isinstance(event, Finished)]
    assert ends == events[-1:]
    return ends[0]


def calls_of(events: list[ModelEvent]) -> list[tuple[str, str, str, str]]:
    """Return id, name, arguments and `closed` of every call, as it was sealed last."""
    last = {event.position: event for event in events if isinstance(event, CallSealed)}
    return [(event.call.id, event.call.name, event.call.arguments, event.closed) for event in last.values()]


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def shape(events: list[ModelEvent]) -> tuple[object, ...]:
    """Return everything that must not depend on how the bytes were split."""
    end = finished(events)
    message: AssistantMessage = end.message
    assert "".join(part.text for part in message.parts if isinstance(part, Text)) == text_of(events)
    return calls_of(events), text_of(events), message, end.reason, end.said, end.usage, end.fault
