"""The agent loop: stream a model once, execute what it asks, decide, again.

`Agent` is the door, `turn` the loop, `history` the conversation, `settings` the bounds. It stands on the engine and adds no way around it:
every call takes the route.
"""

from __future__ import annotations

from callgate.agent.agent import Agent
from callgate.agent.events import AgentEvent, CallEnded, MessageEnded, Notice, RunEnded
from callgate.agent.history import History
from callgate.agent.results import RunResult, Signal, Spent
from callgate.agent.settings import PRESETS, Budget, Settings

__all__ = [
    "PRESETS",
    "Agent",
    "AgentEvent",
    "Budget",
    "CallEnded",
    "History",
    "MessageEnded",
    "Notice",
    "RunEnded",
    "RunResult",
    "Settings",
    "Signal",
    "Spent",
]
