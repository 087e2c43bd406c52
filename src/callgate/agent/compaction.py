"""Long histories made shorter before they no longer fit: when, and two ready ways how.

Asked before each pass, and does nothing until an estimate passes its threshold; the estimate grows with the history, which is never walked
for it. What a hook gives back is taken only if it is a valid conversation, a shorter one, with something of the user in it. Knows no model:
a summary is written by whatever the host gives.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from callgate._abort_signals import AbortSignal
from callgate._options import Count, Options, Seconds, check
from callgate._runners.host_awaits import HostAwaits
from callgate.agent.history import History
from callgate.calls import Audio, Image, Link, Text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["Compact", "Compaction", "Compactor", "estimate_tokens", "keep_last", "summarise"]

log = logging.getLogger("callgate")

Compact = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
"""Takes a conversation and returns a shorter one, in which each call still has exactly one result after it, and the user
still says something. Plain or async."""

_CHARS_PER_TOKEN = 4
_MESSAGE_TOKENS = 4
_MEDIA_TOKENS = 1_000
_GROWTH = 1.1
_GRACE_S = 0.3


def estimate_tokens(message: Message) -> int:
    """About how many tokens a message takes: a token for four characters, 1,000 for a picture or a sound, a few for the message."""
    chars = media = 0
    for part in _parts(message):
        if isinstance(part, (Text, Reasoning)):
            chars += len(part.text)
        elif isinstance(part, ToolCall):
            chars += len(part.name) + len(part.arguments)
        elif isinstance(part, Link):
            chars += len(part.uri) + len(part.name)
        elif isinstance(part, (Image, Audio)):
            media += 1
        else:
            chars += len(str(part))
    return _MESSAGE_TOKENS + -(-chars // _CHARS_PER_TOKEN) + media * _MEDIA_TOKENS


class Compaction(Options, frozen=True, kw_only=True):
    """When a conversation is made shorter, and how."""

    compact: Compact
    """`keep_last(n)`, `summarise(write, keep=n)`, or your own."""
    at_tokens: Count
    """From this estimate on, before a pass. Of the history alone: leave room for instructions, tools and the answer."""
    estimate: Callable[[Message], int] = estimate_tokens
    """Tokens of one message; asked once for each."""
    timeout_s: Seconds = 60.0
    """What an async hook may take; after it the history stays as it is."""


class Compactor:
    """The compaction of one turn."""

    def __init__(self, settings: Compaction, guards: HostAwaits, name: str) -> None:
        self._settings = settings
        self._guards = guards
        self._name = f"compaction of {name}"
        self._at = settings.at_tokens

    async def before_pass(self, history: History, signal: AbortSignal) -> tuple[int, int] | None:
        """Make the history shorter where it is time to, unless `signal` fires. Returns the estimate before and after where it was.

        A hook that fails, takes too long or gives back what is no valid conversation, or no shorter one, changes nothing, and is asked
        again when the history has grown further.
        """
        before = history.tokens(self._settings.estimate)
        if before < self._at:
            return None
        given = list(history.messages)
        shorter = await self._guards.run(
            self._asked(given, before), signal, grace_s=_GRACE_S, name=self._name, timeout_s=self._settings.timeout_s
        )
        changed = shorter is not None and shorter != given
        if changed and shorter is not None:
            history.rewrite(shorter)
        after = history.tokens(self._settings.estimate)
        self._at = max(self._settings.at_tokens, int(after * _GROWTH) + 1)
        return (before, after) if changed else None

    async def _asked(self, messages: list[Message], tokens: int) -> list[Message] | None:
        try:
            found = self._settings.compact(tuple(messages))
            shorter = list(await found if inspect.isawaitable(found) else found)
            problem = _problem(shorter) or self._shortcoming(shorter, messages, tokens)
        except Exception:
            log.warning("The history could not be compacted; it stays as it is", exc_info=True)
            return None
        if problem:
            log.warning("What the compaction gave back cannot be used: %s; the history stays as it is", problem)
        return None if problem else shorter

    def _shortcoming(self, shorter: Sequence[Message], given: Sequence[Message], tokens: int) -> str:
        if not any(isinstance(message, UserMessage) for message in shorter):
            return "it has no message of the user"
        is_longer = shorter != given and sum(map(self._settings.estimate, shorter)) >= tokens
        return "it is no shorter" if is_longer else ""


def keep_last(count: int) -> Compact:
    """A hook that keeps the last messages, and what they need to be understood.

    The system messages at the beginning stay. So does the user's message that the first kept one belongs to, so that a long turn keeps its
    task. Where the cut would part a call from its result, both are kept.

    Raises:
        UsageError: `count` is no whole number from 1.
    """
    check("keep_last", "count", count, Count)

    def compact(messages: Sequence[Message]) -> Sequence[Message]:
        head, _, kept = _split(messages, count)
        return [*head, *kept]

    return compact


def summarise(write: Callable[[Sequence[Message]], str | Awaitable[str]], *, keep: int = 20) -> Compact:
    """A hook that puts a summary in the place of what `keep_last(keep)` would leave out.

    Args:
        write: Gets the messages that go, oldest first, an earlier summary among them; returns the text that stays. Plain or async.
        keep: How many messages stay as they are.

    Raises:
        UsageError: `write` is no function, or `keep` no whole number from 1.
    """
    check("summarise", "write", write, Callable[..., object])
    check("summarise", "keep", keep, Count)

    async def compact(messages: Sequence[Message]) -> Sequence[Message]:
        head, gone, kept = _split(messages, keep)
        if not gone:
            return messages
        written = write(gone)
        text = await written if inspect.isawaitable(written) else written
        return [*head, UserMessage(f"Summary of the conversation before this:\n{text}"), *kept]

    return compact


def _split(messages: Sequence[Message], count: int) -> tuple[Sequence[Message], Sequence[Message], Sequence[Message]]:
    """The system head, what may go, and what stays."""
    first = next((index for index, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    start = max(first, len(messages) - count)
    while start > first and isinstance(messages[start], ToolMessage):
        start -= 1
    kept, gone = messages[start:], messages[first:start]
    if kept and not isinstance(kept[0], UserMessage):
        asked = next((index for index in range(len(gone) - 1, -1, -1) if isinstance(gone[index], UserMessage)), None)
        if asked is not None:
            return messages[:first], [*gone[:asked], *gone[asked + 1 :]], [gone[asked], *kept]
    return messages[:first], gone, kept


def _problem(messages: Sequence[object]) -> str:
    """What is wrong with a conversation; empty if nothing is. Each call has one result, right after its message."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in waiting:
                return f"the result of {message.name} has no call before it"
            waiting.remove(message.call_id)
            continue
        if waiting:
            return "a call has no result"
        if not isinstance(message, (SystemMessage, UserMessage, AssistantMessage)):
            return f"a {type(message).__name__} is no message"
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.calls]
    return "a call has no result" if waiting else ""


def _parts(message: Message) -> Sequence[object]:
    match message:
        case SystemMessage(text=text):
            return (Text(text=text),)
        case UserMessage(content=content):
            return (Text(text=content),) if isinstance(content, str) else content
        case AssistantMessage(parts=parts):
            return parts
        case ToolMessage(content=results):
            return results
        case unknown:
            assert_never(unknown)
