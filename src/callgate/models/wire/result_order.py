"""Put a conversation into the order that every provider insists on: each call's result right behind the message with the call.

A provider refuses a whole conversation for one call without a result, or one result without its call. Histories get there by a crash, by
a user who spoke in between, by somebody's own bookkeeping. Must not know how a provider writes any of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from callgate.calls import Text
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

__all__ = ["order_results"]

_MISSING = "No result of this call was recorded."


def order_results(messages: Sequence[Message]) -> list[Message]:
    """The conversation with one result for every call, in the calls' order, directly behind them.

    A result that was never recorded is said to be missing; a result of no call is told as the user's text. No two calls have one id: some
    servers number theirs anew in every answer.
    """
    messages = list(messages)
    placed: list[Message] = []
    ids = _UniqueIds()
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if isinstance(message, ToolMessage):
            placed.append(_told(message))
            continue
        if not isinstance(message, AssistantMessage) or not message.calls:
            placed.append(message)
            continue
        between = _until_next(messages, at)
        at += len(between)
        results, others = _results(message.calls, between)
        placed += _told_apart(message, results, ids)
        placed += [_told(other) if isinstance(other, ToolMessage) else other for other in others]
    return placed


def _until_next(messages: Sequence[Message], at: int) -> list[Message]:
    """What stands between a message with calls and the next answer of the model."""
    end = next((place for place in range(at, len(messages)) if isinstance(messages[place], AssistantMessage)), len(messages))
    return list(messages[at:end])


def _results(calls: Sequence[ToolCall], between: Sequence[Message]) -> tuple[list[ToolMessage], list[Message]]:
    """A result for each of the calls, and what else stood in `between`."""
    waiting: dict[str, deque[tuple[int, ToolMessage]]] = {}
    for place, message in enumerate(between):
        if isinstance(message, ToolMessage):
            waiting.setdefault(message.call_id, deque()).append((place, message))
    results: list[ToolMessage] = []
    taken: set[int] = set()
    for call in calls:
        place, result = waiting[call.id].popleft() if waiting.get(call.id) else (-1, _missing(call))
        taken.add(place)
        results.append(_as_called(result, call))
    return results, [message for place, message in enumerate(between) if place not in taken]


def _as_called(result: ToolMessage, call: ToolCall) -> ToolMessage:
    """The result as one of this very call: providers refuse a result of another kind, or under another name."""
    if (result.name, result.custom, result.made_id) == (call.name, call.custom, call.made_id):
        return result
    return replace(result, name=call.name, custom=call.custom, made_id=call.made_id)


def _told_apart(message: AssistantMessage, results: Sequence[ToolMessage], ids: _UniqueIds) -> list[Message]:
    """The message and its results, with other ids for calls whose ids have been used before."""
    fresh = [ids.fresh(call.id) for call in message.calls]
    if fresh == [call.id for call in message.calls]:
        return [message, *results]
    rest = iter(fresh)
    parts = tuple(replace(part, id=next(rest)) if isinstance(part, ToolCall) else part for part in message.parts)
    return [replace(message, parts=parts), *(replace(result, call_id=call_id) for result, call_id in zip(results, fresh, strict=True))]


class _UniqueIds:
    """The ids that a conversation has so far."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The number that an id which came before is tried with next."""

    def fresh(self, call_id: str) -> str:
        """The id, or the first like it that is free."""
        found = call_id
        while found in self._seen:
            number = self._numbers.get(call_id, 2)
            self._numbers[call_id], found = number + 1, f"{call_id}_{number}"
        self._seen.add(found)
        return found


def _missing(call: ToolCall) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=(Text(text=_MISSING),), is_error=True, custom=call.custom, made_id=call.made_id
    )


def _told(message: ToolMessage) -> UserMessage:
    return UserMessage((Text(text=f"Result of {message.name}:"), *message.content))
