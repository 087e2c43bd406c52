"""Put a conversation into the order that every provider insists on: each call's result right behind the message with the call.

A provider refuses a whole conversation for one call without a result, or one result without its call. Histories get there by a crash, by
a user who spoke in between, by somebody's own bookkeeping. Must not know how a provider writes any of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count

from msgspec.structs import replace

from callgate.calls import Text
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

__all__ = ["in_place"]

_MISSING = "No result of this call was recorded."


def in_place(messages: Sequence[Message]) -> list[Message]:
    """The conversation with one result for every call, in the calls' order, directly behind them.

    A result that was never recorded is said to be missing; a result of no call is told as the user's text. No two calls have one id: some
    servers number theirs anew in every answer.
    """
    placed: list[Message] = []
    seen: set[str] = set()
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
        results = _results(message.calls, between)
        placed += _told_apart(message, results, seen)
        placed += [_told(other) if isinstance(other, ToolMessage) else other for other in between]
    return placed


def _until_next(messages: Sequence[Message], at: int) -> list[Message]:
    """What stands between a message with calls and the next answer of the model."""
    end = next((place for place in range(at, len(messages)) if isinstance(messages[place], AssistantMessage)), len(messages))
    return list(messages[at:end])


def _results(calls: Sequence[ToolCall], between: list[Message]) -> list[ToolMessage]:
    """A result for each of the calls; those that stood in `between` are taken out of it."""
    results: list[ToolMessage] = []
    for call in calls:
        found = next((message for message in between if isinstance(message, ToolMessage) and message.call_id == call.id), None)
        if found is not None:
            between.remove(found)
        results.append(found or _missing(call))
    return results


def _told_apart(message: AssistantMessage, results: Sequence[ToolMessage], seen: set[str]) -> list[Message]:
    """The message and its results, with other ids for calls whose ids have been used before."""
    ids = [_fresh(call.id, seen) for call in message.calls]
    if ids == [call.id for call in message.calls]:
        return [message, *results]
    rest = iter(ids)
    parts = tuple(replace(part, id=next(rest)) if isinstance(part, ToolCall) else part for part in message.parts)
    return [replace(message, parts=parts), *(replace(result, call_id=call_id) for result, call_id in zip(results, ids, strict=True))]


def _fresh(call_id: str, seen: set[str]) -> str:
    """The id, or the first like it that is free."""
    found = next(name for name in chain((call_id,), (f"{call_id}_{number}" for number in count(2))) if name not in seen)
    seen.add(found)
    return found


def _missing(call: ToolCall) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=(Text(text=_MISSING),), is_error=True, custom=call.custom, made_id=call.made_id
    )


def _told(message: ToolMessage) -> UserMessage:
    return UserMessage((Text(text=f"Result of {message.name}:"), *message.content))
