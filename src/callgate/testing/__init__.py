"""Fakes for tests of an agent: a manual clock, models that play a script, a provider on the loopback interface.

model = ScriptedModel([["Let me look. ", Call("search", {"query": "books"})], "There are two."])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callgate.testing.manual_clock import ManualClock
from callgate.testing.model_script import Beat, Call, End, Fail, Item, Pause, Raise, Thought
from callgate.testing.scripted_models import Recording, ReplayModel, ScriptedModel

if TYPE_CHECKING:
    from callgate.testing.embedder import HashedEmbedder
    from callgate.testing.repeat_recorded_run import PlayedAgain, RecordedRun, load_tools
    from callgate.testing.scripted_server import Drop, Piece, Raw, ReceivedRequest, Reply, ScriptedServer

__all__ = [
    "Beat",
    "Call",
    "Drop",
    "End",
    "Fail",
    "HashedEmbedder",
    "Item",
    "ManualClock",
    "Pause",
    "Piece",
    "PlayedAgain",
    "Raise",
    "Raw",
    "ReceivedRequest",
    "RecordedRun",
    "Recording",
    "ReplayModel",
    "Reply",
    "ScriptedModel",
    "ScriptedServer",
    "Thought",
    "load_tools",
]

_LATER = {
    **dict.fromkeys(("Drop", "Piece", "Raw", "ReceivedRequest", "Reply", "ScriptedServer"), "scripted_server"),
    "HashedEmbedder": "embedder",
    **dict.fromkeys(("PlayedAgain", "RecordedRun", "load_tools"), "repeat_recorded_run"),
}
"""Names that are imported on first use, with their modules."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'callgate.testing' has no attribute '{name}'")
    return getattr(import_module(f"callgate.testing.{_LATER[name]}"), name)
