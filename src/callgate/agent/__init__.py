"""The agent loop: stream a model once, execute what it asks, decide, again.

`Agent` is the door, `turn` the loop, `history` the conversation, `settings` the bounds. It stands on the engine and adds no way around it:
every call takes the route.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callgate.agent.agent import Agent
from callgate.agent.events import AgentEvent, CallEnded, CallStarted, MessageBegan, MessageEnded, Notice, RunEnded
from callgate.agent.exposed import Exposed, Match
from callgate.agent.history import History
from callgate.agent.options import EngineOptions, RunOptions, StreamOptions
from callgate.agent.restart import ContextRestarts, Enrichment
from callgate.agent.results import RunResult, Signal, Spent
from callgate.agent.settings import PRESETS, Budget, ModelSettings, Settings

if TYPE_CHECKING:
    from callgate.agent.compaction import Compaction, estimate_tokens, keep_last, summarise
    from callgate.agent.deliberate import Deliberate

__all__ = [
    "PRESETS",
    "Agent",
    "AgentEvent",
    "Budget",
    "CallEnded",
    "CallStarted",
    "Compaction",
    "ContextRestarts",
    "Deliberate",
    "EngineOptions",
    "Enrichment",
    "Exposed",
    "History",
    "Match",
    "MessageBegan",
    "MessageEnded",
    "ModelSettings",
    "Notice",
    "RunEnded",
    "RunOptions",
    "RunResult",
    "Settings",
    "Signal",
    "Spent",
    "StreamOptions",
    "estimate_tokens",
    "keep_last",
    "summarise",
]

_LATER = {
    "Compaction": "compaction",
    "Deliberate": "deliberate",
    "estimate_tokens": "compaction",
    "keep_last": "compaction",
    "summarise": "compaction",
}
"""What most agents do without, by the module that has it."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'callgate.agent' has no attribute '{name}'")
    return getattr(import_module(f"callgate.agent.{_LATER[name]}"), name)
