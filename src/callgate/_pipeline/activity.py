"""Count the successful calls of an engine since its host last reported a wake-up.

So a host that lets an agent sleep can ask whether any call has succeeded since.
"""

from __future__ import annotations

from callgate._engine_limits import ACTIVE_CONVERSATIONS

__all__ = ["Activity"]


class Activity:
    """The numbers of successful calls of one engine."""

    def __init__(self) -> None:
        self.total = 0
        """The number for all calls, including those outside of a conversation."""
        self._of: dict[str, int] = {}
        """The number by conversation, in the order of their latest success."""

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
        """Reset the count of this conversation, or of all conversations and the engine."""
        if conversation is None:
            self.total = 0
            self._of.clear()
        else:
            self._of.pop(conversation, None)
