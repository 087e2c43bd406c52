"""The agent loop: stream a model once, execute what it asks, decide, again. Every call takes the engine's route.

In reading order:

- `agent`: what an agent is made of, and what one can ask of it; `options`, `settings` and `agent_config` are what it is given
- `runs`, `run_executor`, `run_resumer`: when a run begins, how it goes, how it goes on; `results` and `events` are what comes of it, and
  `event_queue` brings the events to `Agent.stream`
- `turn_factory`, `turn_state`: what one turn works with, and how far it has come; `budget` and `stuck` bound it
- `turn`: the loop; `model_passes`, `message_calls` and `message_commit` are its steps
- `history`: the conversation; `history_repair` and `formats` make one of what comes from elsewhere, `prompt_hash` says which one a pass got
- `run_record`, `recorded_run`, `recorded_results`, `resume_plan`: a run onto the record, back from it, and on from there; `episodes` says
  what it did in a few lines
- `system_prompt`, `exit_tools`, `output`, `text_calls`, `compaction`, `context_restarts`, `deliberate` with `triggers`: what an agent may
  have beside
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callgate.agent.agent import Agent
from callgate.agent.context_restarts import ContextRestarts, Enrichment
from callgate.agent.events import AgentEvent, CallEnded, CallStarted, MessageBegan, MessageEnded, Notice, RunEnded
from callgate.agent.history import History
from callgate.agent.options import AgentRunOptions, AgentStreamOptions, EngineOptions
from callgate.agent.results import Exposed, Match, RunResult, Signal, Spent
from callgate.agent.settings import PRESETS, Budget, ModelSettings, Settings

if TYPE_CHECKING:
    from callgate.agent.compaction import Compaction, estimate_tokens, keep_last, summarise
    from callgate.agent.deliberate import Deliberate

__all__ = [
    "PRESETS",
    "Agent",
    "AgentEvent",
    "AgentRunOptions",
    "AgentStreamOptions",
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
    "RunResult",
    "Settings",
    "Signal",
    "Spent",
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
