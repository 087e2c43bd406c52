"""The agent loop: stream a model once, execute what it asks, decide, again. Every call takes the engine's route.

In reading order:

- `agent`: the class `Agent`. `settings`, `options` and `agent_config` are its options; `results` and `events` what a run returns and tells.
- `runs`: when a run begins. `run_executor`: one run from begin to end. `run_resumer` and `resume_plan`: a run that goes on.
- `turn`: the loop. `model_passes`, `message_calls` and `message_commit`: its three steps. `turn_factory` and `turn_state`: what they share.
- `budget` and `repetition`: what ends a run that uses too much or repeats itself.
- `history`: the conversation. `history_repair` and `message_formats`: conversations from elsewhere. `compaction`: shorter ones.
- `run_record`: writes a run's events. `recorded_run` and `recorded_results`: read them. `prompt_hash`: proves what a pass was shown.
- `system_prompt`, `exit_tools`, `output`, `text_calls`, `context_restarts`, `deliberate`, `trigger_phrases`: options that an agent may use.
- `event_queue` and `run_summary`: events for `Agent.stream`, and short summaries of calls.
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
