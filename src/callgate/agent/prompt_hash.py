"""Hash the messages that the model was shown, so that a replay can verify a reconstructed conversation.

A running SHA-256 over the messages, each as canonical JSON after its length. The hash is computed when it is read; each message is hashed
only once, however many requests contain it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from callgate._json import canonical
from callgate._run_state.event_bodies import valid_text
from callgate.messages import Message

__all__ = ["PromptHash", "as_json"]


class PromptHash:
    """The hash of a conversation up to a certain message.

    Args:
        before: The hash of the earlier messages; None: there are none.
        messages: The messages after those.
    """

    __slots__ = ("_before", "_messages", "_running", "count")

    def __init__(self, before: PromptHash | None, messages: Sequence[Message]) -> None:
        self._before = before
        self._messages = tuple(messages)
        self._running: Any = None
        self.count: int = len(self._messages) + (before.count if before is not None else 0)
        """The number of messages."""

    def digest(self, clean: Callable[[bytes], bytes] | None = None) -> str:
        """Return the hash as 64 hex digits.

        Args:
            clean: Redacts each message before it is hashed, like the record. Must be the same function for a whole conversation.
        """
        waiting: list[PromptHash] = []
        at: PromptHash | None = self
        while at is not None and at._running is None:
            waiting.append(at)
            at = at._before
        for one in reversed(waiting):
            one._compute(clean)
        digest: str = self._running.hexdigest()
        return digest

    def _compute(self, clean: Callable[[bytes], bytes] | None) -> None:
        running = self._before._running.copy() if self._before is not None else hashlib.sha256()
        for message in self._messages:
            raw = as_json(message)
            raw = clean(raw) if clean is not None else raw
            running.update(len(raw).to_bytes(8, "big") + raw)
        self._running = running


def as_json(value: Struct) -> bytes:
    """Return canonical JSON; text that UTF-8 cannot encode is escaped."""
    try:
        return canonical(value)
    except UnicodeEncodeError:
        return canonical(_replace_surrogates(msgspec.to_builtins(value)))


def _replace_surrogates(value: Any) -> Any:
    """Return the same data with text that UTF-8 can encode."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {valid_text(key): _replace_surrogates(one) for key, one in value.items()}
    return [_replace_surrogates(one) for one in value] if isinstance(value, (list, tuple)) else value
