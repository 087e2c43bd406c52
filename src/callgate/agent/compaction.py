"""Make long histories shorter before they exceed the model's context window; with two ready-made methods.

A `Compactor` is called before each request to the model. It does nothing until the estimated number of tokens exceeds a threshold; each
message is estimated only once. The returned messages are used only if they are a valid conversation, shorter, and contain a message of the
user. Does not know models: a function of the host writes the summaries.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from callgate._abort_signals import AbortSignal
from callgate._option_checks import Count, Options, Seconds, check
from callgate._runners.await_host_code import HostAwaits
from callgate.agent.history import History
from callgate.calls import Audio, Image, Link, Text
from callgate.messages import AssistantMessage, Message, Reasoning, SystemMessage, ToolCall, ToolMessage, UserMessage

__all__ = ["Compact", "Compaction", "Compactor", "estimate_tokens", "keep_last", "summarise"]

log = logging.getLogger("callgate")

Compact = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
"""Takes a conversation and returns a shorter one. In the result, each call must still be followed by exactly one result, and at least one
message of the user must remain. Plain or async."""

_CHARS_PER_TOKEN = 4
_MESSAGE_TOKENS = 4
_MEDIA_TOKENS = 1_000
_GROWTH = 1.1
_GRACE_S = 0.3


def estimate_tokens(message: Message) -> int:
    """Return roughly how many tokens a message takes: one per four characters, 1,000 per picture or sound, and 4 for the message itself."""
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
    """The hook: `keep_last(n)`, `summarise(write, keep=n)`, or your own."""
    at_tokens: Count
    """The history is compacted when its estimated tokens reach this number. Leave room for instructions, tools and
    the answer.
    """
    estimate: Callable[[Message], int] = estimate_tokens
    """Returns the tokens of one message; called once per message."""
    timeout_s: Seconds = 60.0
    """The maximum time an async hook may take. After it the history stays unchanged."""


class Compactor:
    """The compaction of one turn."""

    def __init__(self, settings: Compaction, host_awaits: HostAwaits, name: str) -> None:
        self._settings = settings
        self._host_awaits = host_awaits
        self._name = f"compaction of {name}"
        self._at = settings.at_tokens

    async def before_pass(self, history: History, signal: AbortSignal) -> tuple[int, int] | None:
        """Compact the history if its estimate has reached the threshold, unless `signal` fires.

        A hook that fails, takes too long or returns an invalid conversation or one that is not shorter has no effect. It is called again
        when the history has grown further.

        Returns:
            The estimate before and after; None if nothing was changed.
        """
        before = history.tokens(self._settings.estimate)
        if before < self._at:
            return None
        given = list(history.messages)
        shorter = await self._host_awaits.run(
            self._call_hook(given, before), signal, grace_s=_GRACE_S, name=self._name, timeout_s=self._settings.timeout_s
        )
        changed = shorter is not None and shorter != given
        if changed and shorter is not None:
            history.rewrite(shorter)
        after = history.tokens(self._settings.estimate)
        self._at = max(self._settings.at_tokens, int(after * _GROWTH) + 1)
        return (before, after) if changed else None

    async def _call_hook(self, messages: list[Message], tokens: int) -> list[Message] | None:
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
        return "it is not shorter" if is_longer else ""


def keep_last(count: int) -> Compact:
    """Return a hook that keeps the last `count` messages and their context.

    The system messages at the beginning are also kept. If the first kept message belongs to a turn whose user message
    would be removed, that user message is kept too, so that a long turn keeps its task. If the cut would separate a
    call from its result, both are kept.

    Raises:
        UsageError: `count` is not a whole number of at least 1.
    """
    check("keep_last", "count", count, Count)

    def compact(messages: Sequence[Message]) -> Sequence[Message]:
        head, _, kept = _split(messages, count)
        return [*head, *kept]

    return compact


def summarise(write: Callable[[Sequence[Message]], str | Awaitable[str]], *, keep: int = 20) -> Compact:
    """Return a hook that replaces the messages that `keep_last(keep)` would remove with a summary.

    Args:
        write: Called with the messages to be removed, oldest first, including an earlier summary; returns the summary. Plain or async.
        keep: How many messages stay unchanged.

    Raises:
        UsageError: `write` is not a function, or `keep` is not a whole number of at least 1.
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
    """Return the system messages at the beginning, the messages that may be removed, and the messages that stay."""
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
    """Return why the conversation is invalid; empty if it is valid. Each call must have one result, directly after its message."""
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
            return f"a {type(message).__name__} is not a message"
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
