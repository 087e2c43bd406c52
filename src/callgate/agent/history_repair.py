"""Repair a conversation from elsewhere: give each call one result, right after its message, and drop results without a call.

A program that crashed, another framework or manual editing can leave calls without results, results without calls, and misplaced or
duplicate results. Every change is reported; valid parts are not changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from callgate.calls import Text
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage

__all__ = ["repair_history"]

_LOST = "No result of this call was recorded. Whether it took effect is not known; check before you repeat it."


def repair_history(messages: Iterable[Message]) -> tuple[list[Message], list[str]]:
    """Return a valid conversation, and one sentence per change."""
    work = list(messages)
    notes: list[str] = []
    results = _first_results(work, notes)
    mended: list[Message] = []
    ids = _CallIds()
    for message in work:
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AssistantMessage):
            mended.append(message)
            continue
        renamed, answers = _pair(message, results, ids, notes)
        if renamed.parts:
            mended += [renamed, *answers]
        else:
            notes.append("An empty message of the model was left out.")
    notes += [f"A result for '{call_id}', which no call has, was left out." for call_id, queue in results.items() if queue]
    if not notes and mended != work:
        notes.append("Results were put right behind the message that asked for them.")
    return mended, notes


def _first_results(messages: list[Message], notes: list[str]) -> dict[str, deque[ToolMessage]]:
    """Return the results by call id, in order. Further results of an id are kept only if as many calls have the same id."""
    wanted: dict[str, int] = {}
    for message in messages:
        for call in message.calls if isinstance(message, AssistantMessage) else ():
            wanted[call.id] = wanted.get(call.id, 0) + 1
    found: dict[str, deque[ToolMessage]] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            queue = found.setdefault(message.call_id, deque())
            if message.call_id in wanted and len(queue) >= wanted[message.call_id]:
                notes.append(f"A second result for '{message.call_id}' was left out.")
            else:
                queue.append(message)
    return found


def _pair(
    message: AssistantMessage, results: dict[str, deque[ToolMessage]], ids: _CallIds, notes: list[str]
) -> tuple[AssistantMessage, list[ToolMessage]]:
    answers: list[ToolMessage] = []
    parts: list[object] = []
    for part in message.parts:
        if not isinstance(part, ToolCall):
            if not isinstance(part, Text) or part.text:
                parts.append(part)
            continue
        queue = results.get(part.id)
        answer = queue.popleft() if queue else None
        if answer is None:
            notes.append(f"The call '{part.id}' of {part.name} had no result; one was added that says so.")
            answer = ToolMessage(call_id=part.id, name=part.name, content=(Text(text=_LOST),), is_error=True)
        call = ids.unique(part, notes)
        parts.append(call)
        answers.append(answer if call is part else replace(answer, call_id=call.id))
    unchanged = len(parts) == len(message.parts) and all(a is b for a, b in zip(parts, message.parts, strict=True))
    return message if unchanged else replace(message, parts=tuple(parts)), answers


class _CallIds:
    """The call ids of the repaired conversation so far."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The number to try first to make a repeated id unique, by id."""

    def unique(self, call: ToolCall, notes: list[str]) -> ToolCall:
        name = call_id = call.id or "call"
        while call_id in self._taken:
            number = self._numbers.get(name, 2)
            self._numbers[name], call_id = number + 1, f"{name}-{number}"
        self._taken.add(call_id)
        if call_id == call.id:
            return call
        notes.append(f"The call id '{call.id}' was not unique; one call is now '{call_id}'.")
        return replace(call, id=call_id)
