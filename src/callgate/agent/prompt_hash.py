"""Hash the messages that a pass of the model was shown, so that a replay can verify a reconstructed conversation.

A running SHA-256 over the messages, each as canonical JSON behind its length. Computed when it is read, and each message once, however many
passes see it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callgate._json import canonical
from callgate._pipeline.event_bodies import valid_text
from callgate.messages import Message

__all__ = ["PromptHash", "as_json"]


class PromptHash:
    """The hash of a conversation up to some message.

    Args:
        before: The conversation that it goes on from; None: it begins here.
        messages: What came since.
    """

    __slots__ = ("_before", "_messages", "_running", "count")

    def __init__(self, before: PromptHash | None, messages: Sequence[Message]) -> None:
        self._before = before
        self._messages = tuple(messages)
        self._running: Any = None
        self.count: int = len(self._messages) + (before.count if before is not None else 0)
        """How many messages it has."""

    def digest(self, clean: Callable[[bytes], bytes] | None = None) -> str:
        """The hash, as 64 hex digits.

        Args:
            clean: Takes secrets out of each message first, as they are taken out of the record; the same for all of a conversation.
        """
        waiting: list[PromptHash] = []
        at: PromptHash | None = self
        while at is not None and at._running is None:
            waiting.append(at)
            at = at._before
        for one in reversed(waiting):
            one._work_out(clean)
        digest: str = self._running.hexdigest()
        return digest

    def _work_out(self, clean: Callable[[bytes], bytes] | None) -> None:
        running = self._before._running.copy() if self._before is not None else hashlib.sha256()
        for message in self._messages:
            raw = as_json(message)
            raw = clean(raw) if clean is not None else raw
            running.update(len(raw).to_bytes(8, "big") + raw)
        self._running = running


def as_json(value: Struct) -> bytes:
    """Canonical JSON; text that UTF-8 cannot hold is escaped."""
    try:
        return canonical(value)
    except UnicodeEncodeError:
        return canonical(_valid(msgspec.to_builtins(value)))


def _valid(value: Any) -> Any:
    """The same data in text that UTF-8 can hold."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {valid_text(key): _valid(one) for key, one in value.items()}
    return [_valid(one) for one in value] if isinstance(value, (list, tuple)) else value
