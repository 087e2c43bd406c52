"""The agent loop: let a model answer, run the tool calls of its answer, and repeat until the task is done.

In reading order:

- `agent`: the class `Agent`. `settings`, `options`, `agent_config`: its options. `results`, `events`: the result and the events of a run.
- `runs`: starts a run. `run_executor`: executes it. `run_resumer` and `resume_plan`: resume it.
- `turn`: the loop. `model_passes`, `message_calls`, `message_commit`: its three steps. `turn_factory`, `turn_state`: the parts they share.
- `budget` and `repetition`: end a run that uses too much or repeats itself.
- `history`: the conversation. `history_repair` and `message_formats`: import and export it. `compaction`: makes it shorter.
- `run_record`: writes a run's events. `recorded_run` and `recorded_results`: read them. `prompt_hash`: lets a replay verify a prompt.
- `system_prompt`, `exit_tools`, `output`, `text_calls`, `context_restarts`, `deliberate`, `trigger_phrases`: optional features of an agent.
- `event_queue` and `run_summary`: events for `Agent.stream`, and short summaries of calls.

A pass is one request to the model with its streamed answer. An iteration is a pass with calls, and the calls. A turn consists of the
iterations from a message of the user to the answer. Every call takes the engine's route.
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
"""Names that are imported on first use, because most agents do not need them, with the modules that define them."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'callgate.agent' has no attribute '{name}'")
    return getattr(import_module(f"callgate.agent.{_LATER[name]}"), name)
