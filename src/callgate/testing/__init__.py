"""What tests of an agent need: a clock that stands still, models that play a script, a provider on the loopback interface.

model = ScriptedModel([["Let me look. ", Call("search", {"query": "books"})], "There are two."])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callgate.testing.clock import ManualClock
from callgate.testing.models import Recording, ReplayModel, ScriptedModel
from callgate.testing.script import Beat, Call, End, Fail, Item, Pause, Raise, Thought

if TYPE_CHECKING:
    from callgate.testing.server import Drop, Piece, Raw, Received, Reply, ScriptedServer

__all__ = [
    "Beat",
    "Call",
    "Drop",
    "End",
    "Fail",
    "Item",
    "ManualClock",
    "Pause",
    "Piece",
    "Raise",
    "Raw",
    "Received",
    "Recording",
    "ReplayModel",
    "Reply",
    "ScriptedModel",
    "ScriptedServer",
    "Thought",
]

_SERVER = frozenset({"Drop", "Piece", "Raw", "Received", "Reply", "ScriptedServer"})


def __getattr__(name: str) -> Any:
    if name not in _SERVER:
        raise AttributeError(f"module 'callgate.testing' has no attribute '{name}'")
    from callgate.testing import server

    return getattr(server, name)
