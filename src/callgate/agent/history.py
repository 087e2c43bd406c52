"""Keep the conversation in a form that is valid for every provider at any time.

A message with calls is committed once, together with the results of its calls, in order; calls without a result are left out. A call that
waits for a human has a placeholder as its result, which the call's own result replaces later. Each call in a history therefore has exactly
one result, directly after its message, however the turn ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from callgate._option_checks import by_name
from callgate.agent.prompt_hash import PromptHash
from callgate.agent.run_result import CommittedMessage
from callgate.calls import Suspended, Text, ToolResult
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["History", "HistoryCache", "commit_message"]

_WAITS = "This call has not run: it waits for a human's answer. Its result will stand here. Do not send it again."

_MESSAGES = (UserMessage, AssistantMessage, ToolMessage, SystemMessage)


class History:
    """A growing list of messages. Only the result of a waiting call and a compaction change messages that were committed.

    Args:
        messages: The conversation so far. Repair one from elsewhere with `callgate.agent.history_repair` first.

    Raises:
        UsageError: An item is in a provider's format, or is not a message.
    """

    __slots__ = ("_counted", "_ids", "_numbers", "_prompt_hash", "_tokens", "killed", "messages", "recorded", "turns")

    @by_name
    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self.messages: list[Message] = list(messages)
        for place, message in enumerate(self.messages):
            if not isinstance(message, _MESSAGES):
                raise UsageError(
                    f"Message {place} of the history is a {type(message).__name__}. Give those of callgate.messages;"
                    " callgate.agent.conversation_formats.from_native makes them of OpenAI's."
                )
        self._ids = _ids_of(self.messages)
        self._numbers: dict[str, int] = {}
        """The number to try first to make a repeated id unique, by id."""
        self._counted = 0
        self._tokens = 0
        self._prompt_hash = PromptHash(None, ())
        self.recorded = 0
        """The position of the event up to which the record contains this conversation; 0: the record does not contain it."""
        self.killed: list[ToolCall] = []
        """The calls of the latest message that a kill ended and that may have taken effect. The messages do not contain them, and the model
        has not been told of them.
        """
        self.turns = sum(isinstance(message, UserMessage) for message in self.messages)
        """The number of the conversation's latest turn. For imported messages, the number of user messages among
        them.
        """

    def fork(self) -> History:
        """Return a copy; what is committed to the copy does not change this history."""
        fork = History(self.messages)
        fork._counted, fork._tokens, fork.recorded, fork._prompt_hash = self._counted, self._tokens, self.recorded, self._prompt_hash
        fork.turns, fork.killed = self.turns, list(self.killed)
        return fork

    def user(self, text: str) -> None:
        self.messages.append(UserMessage(text))

    def system(self, text: str) -> None:
        self.messages.append(SystemMessage(text))

    def add(self, message: Message) -> None:
        self.messages.append(message)

    def answer(self, message: AssistantMessage) -> None:
        """Commit a message without its calls; an empty message is left out."""
        if any(not isinstance(part, ToolCall) for part in message.parts):
            self.messages.append(replace(message, parts=tuple(part for part in message.parts if not isinstance(part, ToolCall))))

    def commit(self, message: AssistantMessage, ends: Sequence[ToolResult | Suspended | None]) -> CommittedMessage:
        """Commit a message with the results of its calls.

        Args:
            message: The message as the model wrote it.
            ends: The end of each of its calls, in order; None for a call that is left out.
        """
        kept: list[Text | Reasoning | ToolCall | Native] = []
        answers: list[ToolMessage] = []
        ids: list[str] = []
        for part in message.parts:
            if type(part) is not ToolCall:
                kept.append(part)
                continue
            end = ends[len(ids)]
            if end is None:
                ids.append("")
                continue
            if part.id and part.id not in self._ids:
                call = part
                self._ids.add(part.id)
            else:
                call = self._with_unique_id(part)
            ids.append(call.id)
            kept.append(call)
            answers.append(_message_of(call, end))
        if answers or any(type(part) is Text or type(part) is Native for part in kept):
            parts = tuple(kept)
            self.messages.append(message if parts == message.parts else replace(message, parts=parts))
            self.messages.extend(answers)
        results: list[ToolResult | None] = []
        waiting: list[int] = []
        for place, end in enumerate(ends):
            results.append(end if isinstance(end, ToolResult) else None)
            if isinstance(end, Suspended):
                waiting.append(place)
        return CommittedMessage(message=message, results=tuple(results), ids=tuple(ids), waiting=tuple(waiting))

    def complete(self, before: CommittedMessage, ends: Sequence[ToolResult | Suspended | None]) -> CommittedMessage:
        """Replace the placeholders of calls that waited with their results.

        If a compaction has removed the placeholders, the whole message is committed again.

        Args:
            before: The message as it was committed.
            ends: The end of each call that waited, in order; None for a call that is not to be kept.
        """
        fresh = dict(zip(before.waiting, ends, strict=True))
        if not self._fill({before.ids[place]: end for place, end in fresh.items()}):
            self._leave_out({call_id for call_id in before.ids if call_id})
            return self.commit(before.message, [fresh.get(place, result) for place, result in enumerate(before.results)])
        results, ids = list(before.results), list(before.ids)
        for place, end in fresh.items():
            results[place] = end if isinstance(end, ToolResult) else None
            ids[place] = ids[place] if end is not None else ""
        waiting = tuple(place for place, end in fresh.items() if isinstance(end, Suspended))
        return CommittedMessage(message=before.message, results=tuple(results), ids=tuple(ids), waiting=waiting)

    def tokens(self, estimate: Callable[[Message], int]) -> int:
        """Return roughly how many tokens the conversation takes; `estimate` is called once per message."""
        for index in range(self._counted, len(self.messages)):
            self._tokens += estimate(self.messages[index])
        self._counted = len(self.messages)
        return self._tokens

    def prompt_hash(self) -> PromptHash:
        """Return the hash of the conversation in its current state."""
        shown = self._prompt_hash
        if shown.count < len(self.messages):
            shown = self._prompt_hash = PromptHash(shown, self.messages[shown.count :])
        return shown

    def restart_from(self, messages: Iterable[Message]) -> None:
        """Replace the conversation with another one; only the call ids of the new one count as used."""
        self.messages[:] = messages
        self._ids, self._numbers = _ids_of(self.messages), {}
        self._recount()

    def rewrite(self, messages: Iterable[Message]) -> None:
        """Replace the conversation with a shorter one; the call ids of both count as used."""
        self.messages[:] = messages
        self._ids |= _ids_of(self.messages)
        self._recount()

    def _fill(self, ends: Mapping[str, ToolResult | Suspended | None]) -> bool:
        """Replace the results of waiting calls, by id. Return False and change nothing if one of them is missing."""
        places = {one.call_id: place for place, one in enumerate(self.messages) if isinstance(one, ToolMessage) and one.call_id in ends}
        if len(places) < len(ends):
            return False
        for call_id, place in places.items():
            waited, end = self.messages[place], ends[call_id]
            if isinstance(waited, ToolMessage) and isinstance(end, ToolResult):
                self.messages[place] = replace(waited, content=end.content, is_error=end.status != "ok")
        self._leave_out({call_id for call_id, end in ends.items() if end is None})
        self._recount()
        return True

    def _leave_out(self, ids: set[str]) -> None:
        """Remove these calls and their results, and messages that then contain nothing else."""
        if not ids:
            return
        kept: list[Message] = []
        for message in self.messages:
            if isinstance(message, ToolMessage) and message.call_id in ids:
                continue
            if isinstance(message, AssistantMessage) and any(call.id in ids for call in message.calls):
                message = replace(message, parts=tuple(part for part in message.parts if not (type(part) is ToolCall and part.id in ids)))
                if not any(type(part) is not Reasoning for part in message.parts):
                    continue
            kept.append(message)
        self.messages[:] = kept
        self._recount()

    def _recount(self) -> None:
        self._counted = self._tokens = 0
        self._prompt_hash = PromptHash(None, ())

    def _with_unique_id(self, call: ToolCall) -> ToolCall:
        """Return the call with an id that is unique in the conversation."""
        name = call.id or "call"
        number = self._numbers.get(name, 2)
        while f"{name}-{number}" in self._ids:
            number += 1
        self._numbers[name] = number + 1
        call = replace(call, id=f"{name}-{number}")
        self._ids.add(call.id)
        return call


class HistoryCache:
    """Remembers the most recently used conversations.

    Args:
        most: The maximum number of conversations.
    """

    def __init__(self, most: int = 1_000) -> None:
        self._histories: OrderedDict[str, History] = OrderedDict()
        self._most = most

    def get(self, conversation: str) -> History | None:
        history = self._histories.get(conversation)
        if history is not None:
            self._histories.move_to_end(conversation)
        return history

    def keep(self, conversation: str, history: History) -> None:
        self._histories[conversation] = history
        if len(self._histories) > self._most:
            self._histories.popitem(last=False)


def commit_message(
    history: History,
    before: CommittedMessage | None,
    message: AssistantMessage,
    ends: Sequence[ToolResult | Suspended | None],
    results: list[ToolResult],
) -> CommittedMessage:
    """Commit the calls of a message, and append their results to those of the run, in order.

    Args:
        history: The conversation. Modified.
        before: The message as it was committed, if `message` contains only those of its calls that waited for a human;
            else None.
        message: The message with these calls.
        ends: The end of each call.
        results: The results of the run. Modified.
    """
    whole = history.commit(message, ends) if before is None else history.complete(before, ends)
    if before is not None:  # the waiting message is the last one of its run, so its results are the last ones
        del results[len(results) - len(before.answered) :]
    results += whole.answered
    return whole


def _ids_of(messages: Iterable[Message]) -> set[str]:
    return {call.id for message in messages if isinstance(message, AssistantMessage) for call in message.calls}


def _message_of(call: ToolCall, end: ToolResult | Suspended) -> ToolMessage:
    content, is_error = ((Text(text=_WAITS),), False) if isinstance(end, Suspended) else (end.content, end.status != "ok")
    return ToolMessage(call_id=call.id, name=call.name, content=content, is_error=is_error, custom=call.custom, made_id=call.made_id)
