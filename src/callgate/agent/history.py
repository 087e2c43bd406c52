"""The conversation as the next request will carry it: always valid for every provider.

A message with calls is committed together with the results of its calls, in order, and only with those calls that have one. So each call
in a history has exactly one result, in its place, whatever ended the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from callgate.agent.shown import Shown
from callgate.calls import Text, ToolResult
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["History"]

_MESSAGES = (UserMessage, AssistantMessage, ToolMessage, SystemMessage)


class History:
    """A growing list of messages. Append-only: what was committed is never changed, except by a compaction of the whole.

    Args:
        messages: A conversation so far; repair one from elsewhere with `callgate.agent.mend` first.

    Raises:
        UsageError: One of them is in a provider's form, or no message at all.
    """

    __slots__ = ("_counted", "_ids", "_numbers", "_shown", "_tokens", "messages", "recorded", "turns")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)
        for place, message in enumerate(self.messages):
            if not isinstance(message, _MESSAGES):
                raise UsageError(
                    f"Message {place} of the history is a {type(message).__name__}. Give those of callgate.messages;"
                    " callgate.agent.formats.from_native makes them of OpenAI's."
                )
        self._ids = _ids_of(self.messages)
        self._numbers: dict[str, int] = {}
        """Where to look for a free number for an id that came before."""
        self._counted = 0
        self._tokens = 0
        self._shown = Shown(None, ())
        self.recorded = 0
        """The position of the event up to which the record has this conversation; 0: it does not have it."""
        self.turns = sum(isinstance(message, UserMessage) for message in self.messages)
        """The number of its latest turn; of a conversation from elsewhere, how often its user spoke."""

    def fork(self) -> History:
        """A copy that goes its own way: what is committed to it leaves no trace here."""
        fork = History(self.messages)
        fork._counted, fork._tokens, fork.recorded, fork._shown = self._counted, self._tokens, self.recorded, self._shown
        fork.turns = self.turns
        return fork

    def user(self, text: str) -> None:
        self.messages.append(UserMessage(text))

    def system(self, text: str) -> None:
        self.messages.append(SystemMessage(text))

    def add(self, message: Message) -> None:
        self.messages.append(message)

    def answer(self, message: AssistantMessage) -> None:
        """Commit a message without calls; one without anything to say leaves no trace."""
        if any(not isinstance(part, ToolCall) for part in message.parts):
            self.messages.append(replace(message, parts=tuple(part for part in message.parts if not isinstance(part, ToolCall))))

    def commit(self, message: AssistantMessage, results: Sequence[ToolResult | None]) -> None:
        """Commit a message with the results of its calls.

        Args:
            message: As the model wrote it.
            results: One for each of its calls, in order; None for a call that is to leave no trace.
        """
        kept: list[Text | Reasoning | ToolCall | Native] = []
        answers: list[ToolMessage] = []
        waiting = iter(results)
        for part in message.parts:
            if type(part) is not ToolCall:
                kept.append(part)
                continue
            result = next(waiting)
            if result is not None:
                call = self._unique(part)
                kept.append(call)
                answers.append(_message_of(call, result))
        if answers or any(type(part) is Text or type(part) is Native for part in kept):
            parts = tuple(kept)
            self.messages.append(message if parts == message.parts else replace(message, parts=parts))
            self.messages.extend(answers)

    def tokens(self, estimate: Callable[[Message], int]) -> int:
        """About how many tokens the conversation takes; each message is asked about once."""
        for index in range(self._counted, len(self.messages)):
            self._tokens += estimate(self.messages[index])
        self._counted = len(self.messages)
        return self._tokens

    def shown(self) -> Shown:
        """The conversation as it is now, to be held against another one."""
        shown = self._shown
        if shown.count < len(self.messages):
            shown = self._shown = Shown(shown, self.messages[shown.count :])
        return shown

    def rewrite(self, messages: Iterable[Message]) -> None:
        """Put a shorter conversation in the place of this one; ids that were given stay taken, and those that it brings are."""
        self.messages[:] = messages
        self._ids |= _ids_of(self.messages)
        self._counted = self._tokens = 0
        self._shown = Shown(None, ())

    def _unique(self, call: ToolCall) -> ToolCall:
        """The call under an id that no other call of the conversation has."""
        if call.id in self._ids or not call.id:
            name = call.id or "call"
            number = self._numbers.get(name, 2)
            while f"{name}-{number}" in self._ids:
                number += 1
            self._numbers[name] = number + 1
            call = replace(call, id=f"{name}-{number}")
        self._ids.add(call.id)
        return call


def _ids_of(messages: Iterable[Message]) -> set[str]:
    return {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.calls}


def _message_of(call: ToolCall, result: ToolResult) -> ToolMessage:
    return ToolMessage(
        call_id=call.id,
        name=call.name,
        content=result.content,
        is_error=result.status != "ok",
        custom=call.custom,
        made_id=call.made_id,
    )
