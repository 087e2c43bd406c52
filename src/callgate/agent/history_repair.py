"""Repair a conversation from elsewhere: give each call one result, right after its message, and drop results without a call.

A program that crashed, another framework or manual editing can leave calls without results, results without calls, and misplaced or
duplicate results. Every change is reported; valid parts are not changed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from msgspec.structs import replace

from callgate.calls import Text
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage
from callgate.models.wire.result_order import UniqueIds

__all__ = ["repair_history"]

_LOST = "No result of this call was recorded. Whether it took effect is not known; check before you repeat it."


def repair_history(messages: Iterable[Message]) -> tuple[list[Message], list[str]]:
    """Return a valid conversation, and one sentence per change."""
    repair = _Repair(list(messages))
    return repair.repaired_messages(), repair.notes


class _Repair:
    """The repair of one conversation.

    Args:
        messages: The conversation as it is.
    """

    def __init__(self, messages: list[Message]) -> None:
        self.notes: list[str] = []
        """One sentence per change so far."""
        self._messages = messages
        self._results: dict[str, deque[ToolMessage]] = {}
        """The results that have no call yet, by call id, in order."""
        self._ids = UniqueIds("-")

    def repaired_messages(self) -> list[Message]:
        """Return the repaired conversation."""
        self._collect_results()
        repaired: list[Message] = []
        for message in self._messages:
            if isinstance(message, AssistantMessage):
                repaired += self._answered_message(message)
            elif not isinstance(message, ToolMessage):
                repaired.append(message)
        self.notes += [f"A result for '{call_id}', which no call has, was left out." for call_id, left in self._results.items() if left]
        if not self.notes and repaired != self._messages:
            self.notes.append("Results were put right behind the message that asked for them.")
        return repaired

    def _collect_results(self) -> None:
        """Collect the results. Further results of an id are kept only if as many calls have the same id."""
        calls = Counter(call.id for message in self._messages if isinstance(message, AssistantMessage) for call in message.calls)
        for message in self._messages:
            if isinstance(message, ToolMessage):
                results = self._results.setdefault(message.call_id, deque())
                if message.call_id in calls and len(results) >= calls[message.call_id]:
                    self.notes.append(f"A second result for '{message.call_id}' was left out.")
                else:
                    results.append(message)

    def _answered_message(self, message: AssistantMessage) -> list[Message]:
        """Return the message without empty texts, followed by one result for each of its calls."""
        parts: list[object] = []
        answers: list[ToolMessage] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                answer = self._take_result(part)
                call = self._with_unique_id(part)
                parts.append(call)
                answers.append(answer if call is part else replace(answer, call_id=call.id))
            elif not isinstance(part, Text) or part.text:
                parts.append(part)
        if not parts:
            self.notes.append("An empty message of the model was left out.")
            return []
        unchanged = len(parts) == len(message.parts) and all(a is b for a, b in zip(parts, message.parts, strict=True))
        return [message if unchanged else replace(message, parts=tuple(parts)), *answers]

    def _take_result(self, call: ToolCall) -> ToolMessage:
        """Return the call's result, or one that says that none was recorded."""
        results = self._results.get(call.id)
        if results:
            return results.popleft()
        self.notes.append(f"The call '{call.id}' of {call.name} had no result; one was added that says so.")
        return ToolMessage(call_id=call.id, name=call.name, content=(Text(text=_LOST),), is_error=True)

    def _with_unique_id(self, call: ToolCall) -> ToolCall:
        """Return the call with an id that no earlier call of the conversation has."""
        call_id = self._ids.make_unique(call.id or "call")
        if call_id == call.id:
            return call
        self.notes.append(f"The call id '{call.id}' was not unique; one call is now '{call_id}'.")
        return replace(call, id=call_id)
