"""How long a tool stays exposed after it was of use, so that "do it again" finds it.

Counts turns per conversation and tool. How many is the operator's business, never a tool's. Knows no messages and no triggers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

__all__ = ["Retention"]

_MOST_TURNS = 10
_MOST_TOOLS = 256


class Retention:
    """Which tools each conversation still offers. Safe to use from several threads.

    Args:
        turns: How many turns after the one of its success a tool stays exposed; clamped to 0 to 10.
        conversations: How many are remembered; the one that was used longest ago goes first.
    """

    def __init__(self, turns: int = 4, *, conversations: int = 1_000) -> None:
        self.turns = max(0, min(_MOST_TURNS, int(turns)))
        self._most = conversations
        self._kept: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._lock = threading.Lock()

    def names(self, conversation: str) -> frozenset[str]:
        """The tools that are still exposed; looking changes nothing."""
        with self._lock:
            return frozenset(self._kept.get(conversation, ()))

    def begin_turn(self, conversation: str) -> frozenset[str]:
        """The tools that this turn still exposes; one turn of each is used up by that."""
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
        """The tool was of use in the present turn: its turns start anew."""
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

    def forget(self, conversation: str) -> None:
        """The conversation is over."""
        with self._lock:
            self._kept.pop(conversation, None)
