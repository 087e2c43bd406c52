"""What tests of an agent need: a clock that stands still, models that play a script, a provider on the loopback interface.

model = ScriptedModel([["Let me look. ", Call("search", {"query": "books"})], "There are two."])
"""

from __future__ import annotations

from callgate.testing.clock import ManualClock
from callgate.testing.models import Recording, ReplayModel, ScriptedModel
from callgate.testing.script import Beat, Call, End, Fail, Item, Pause, Raise, Thought
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
