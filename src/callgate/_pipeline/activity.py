"""How many calls have succeeded since the host last said that it woke: of an engine, and of each of its conversations.

A host that lets an agent sleep asks this whether anything has happened. Kept in memory only; knows nothing of calls.
"""

from __future__ import annotations

from callgate._limits import ACTIVE_CONVERSATIONS

__all__ = ["Activity"]


class Activity:
    """The counts of one engine."""

    def __init__(self) -> None:
        self.total = 0
        """Of all calls, those outside a conversation included."""
        self._of: dict[str, int] = {}
        """By conversation, the one that was active last at the end."""

    def count(self, conversation: str) -> None:
        """Count a success."""
        self.total += 1
        if conversation:
            self._of[conversation] = self._of.pop(conversation, 0) + 1
            if len(self._of) > ACTIVE_CONVERSATIONS:
                del self._of[next(iter(self._of))]

    def of(self, conversation: str) -> int:
        return self._of.get(conversation, 0)

    def wake(self, conversation: str | None = None) -> None:
        """Count anew: for this conversation, or for all and the engine."""
        if conversation is None:
            self.total = 0
            self._of.clear()
        else:
            self._of.pop(conversation, None)
