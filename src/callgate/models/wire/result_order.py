"""Order a conversation as every provider requires: each call's result directly after the message with the call.

A provider refuses the whole conversation if one call has no result, or one result has no call. Such a history can
result from a crash, from a user message between call and result, or from a host's own bookkeeping. Knows no provider's
format.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from callgate.calls import Text
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

__all__ = ["UniqueIds", "order_results"]

_MISSING_TEXT = "No result of this call was recorded."


def order_results(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with one result for every call, in the calls' order, directly after their message.

    A result that was never recorded is replaced by an error result; a result without a call becomes the user's text. Call ids become
    unique: some servers number them anew in every answer.
    """
    messages = list(messages)
    ordered: list[Message] = []
    ids = UniqueIds("_")
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if isinstance(message, ToolMessage):
            ordered.append(_as_user_text(message))
            continue
        if not isinstance(message, AssistantMessage) or not message.calls:
            ordered.append(message)
            continue
        between = _messages_before_next_answer(messages, at)
        at += len(between)
        results, rest = _match_results(message.calls, between)
        ordered += _with_unique_ids(message, results, ids)
        ordered += [_as_user_text(other) if isinstance(other, ToolMessage) else other for other in rest]
    return ordered


def _messages_before_next_answer(messages: Sequence[Message], at: int) -> list[Message]:
    """Return the messages between a message with calls and the model's next answer."""
    end = next((position for position in range(at, len(messages)) if isinstance(messages[position], AssistantMessage)), len(messages))
    return list(messages[at:end])


def _match_results(calls: Sequence[ToolCall], between: Sequence[Message]) -> tuple[list[ToolMessage], list[Message]]:
    """Return a result for each call, and the other messages of `between`."""
    waiting: dict[str, deque[tuple[int, ToolMessage]]] = {}
    for position, message in enumerate(between):
        if isinstance(message, ToolMessage):
            waiting.setdefault(message.call_id, deque()).append((position, message))
    results: list[ToolMessage] = []
    used: set[int] = set()
    for call in calls:
        position, result = waiting[call.id].popleft() if waiting.get(call.id) else (-1, _missing_result(call))
        used.add(position)
        results.append(_match_call(result, call))
    return results, [message for position, message in enumerate(between) if position not in used]


def _match_call(result: ToolMessage, call: ToolCall) -> ToolMessage:
    """Return the result with the call's name and kind: providers refuse a result that differs from its call."""
    if (result.name, result.custom, result.made_id) == (call.name, call.custom, call.made_id):
        return result
    return replace(result, name=call.name, custom=call.custom, made_id=call.made_id)


def _with_unique_ids(message: AssistantMessage, results: Sequence[ToolMessage], ids: UniqueIds) -> list[Message]:
    """Return the message and its results, with new ids for calls whose ids were used before."""
    unique = [ids.make_unique(call.id) for call in message.calls]
    if unique == [call.id for call in message.calls]:
        return [message, *results]
    ids_left = iter(unique)
    parts = tuple(replace(part, id=next(ids_left)) if isinstance(part, ToolCall) else part for part in message.parts)
    return [replace(message, parts=parts), *(replace(result, call_id=call_id) for result, call_id in zip(results, unique, strict=True))]


class UniqueIds:
    """The call ids of a conversation so far.

    Args:
        separator: Stands between an id that was used before and the number that makes it unique.
    """

    def __init__(self, separator: str) -> None:
        self._separator = separator
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The number to try next for an id that was used before."""

    def make_unique(self, call_id: str) -> str:
        """Return the id, or the id with the first free number."""
        found = call_id
        while found in self._used:
            number = self._numbers.get(call_id, 2)
            self._numbers[call_id], found = number + 1, f"{call_id}{self._separator}{number}"
        self._used.add(found)
        return found


def _missing_result(call: ToolCall) -> ToolMessage:
    return ToolMessage(
        call_id=call.id, name=call.name, content=(Text(text=_MISSING_TEXT),), is_error=True, custom=call.custom, made_id=call.made_id
    )


def _as_user_text(message: ToolMessage) -> UserMessage:
    return UserMessage((Text(text=f"Result of {message.name}:"), *message.content))
