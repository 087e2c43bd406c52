"""Keep a tool that was used with success exposed for a few more turns of its conversation.

`deliberate_mode` asks which tools are still exposed when it plans a turn. Knows no trigger and no message.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

__all__ = ["Retention"]

_MOST_TURNS = 10
_MOST_TOOLS = 256


class Retention:
    """Keeps tools that were used with success exposed for a few more turns of their conversation. Thread-safe.

    Args:
        turns: The number of turns for which a tool stays exposed after the turn in which it succeeded; clamped to 0 to
            10.
        conversations: The maximum number of remembered conversations; the least recently used one is dropped first.
    """

    def __init__(self, turns: int = 4, *, conversations: int = 1_000) -> None:
        self.turns = max(0, min(_MOST_TURNS, int(turns)))
        self._most = conversations
        self._kept: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._lock = threading.Lock()

    def names(self, conversation: str) -> frozenset[str]:
        """Return the tools that are still exposed, without using up one of their turns."""
        with self._lock:
            return frozenset(self._kept.get(conversation, ()))

    def begin_turn(self, conversation: str) -> frozenset[str]:
        """Return the tools that are still exposed in this turn, and use up one turn of each."""
        with self._lock:
            kept = self._kept.get(conversation)
            if kept is None:
                return frozenset()
            left = {tool: turns - 1 for tool, turns in kept.items() if turns > 1}
            if left:
                self._kept[conversation] = left
                self._kept.move_to_end(conversation)
            else:
                del self._kept[conversation]
            return frozenset(kept)

    def extend(self, conversation: str, tool: str) -> None:
        """Keep a tool exposed for the full number of turns, because it succeeded in the current turn."""
        if self.turns == 0:
            return
        with self._lock:
            kept = self._kept.setdefault(conversation, {})
            self._kept.move_to_end(conversation)
            kept.pop(tool, None)
            kept[tool] = self.turns
            if len(kept) > _MOST_TOOLS:
                del kept[next(iter(kept))]
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
