"""The agent loop: let a model answer, run the tool calls of its answer, and repeat until the task is done.

In reading order:

- `agent`: the class `Agent`. `loop_settings`, `agent_options`, `agent_config`: its options. `run_result`,
  `run_events`: what a run returns and yields.
- `run_starter`, `unended_runs` and `nested_turns`: start a run. `run_executor`: executes it. `run_resumer`, `resume_plan` and
  `missing_tools`: resume it.
- `turn_loop`: the loop. `model_passes`, `message_calls`, `commit_results`: its three steps. `turn_factory`,
  `turn_state`: the parts they share.
- `budget` and `repetition`: end a run that uses too much or repeats itself.
- `history`: the conversation. `history_repair` and `conversation_formats`: import and export it.
  `compaction`: makes it shorter. `interruption_note`: what a model is told after an interruption.
- `run_recorder`: writes a run's events. `recorded_run` and `recorded_results`: read them. `prompt_hash`: lets a
  replay verify a prompt.
- `system_prompt`, `exit_tools`, `typed_output`, `text_call_model` with `repeated_results`, `context_restarts`,
  `deliberate_mode`, `tool_retention`, `trigger_phrases`: optional features of an agent.
- `event_listener`, `event_queue` and `run_summary`: events for `on_event` and `Agent.stream`, and short summaries of
  calls.

A pass is one request to the model with its streamed answer. An iteration is a pass whose answer has calls, together
with these calls. A turn consists of the iterations from a message of the user to the answer. The engine runs every
call.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callgate.agent.agent import Agent
from callgate.agent.agent_options import AgentRunOptions, AgentStreamOptions, EngineOptions
from callgate.agent.context_restarts import ContextRestarts, Enrichment
from callgate.agent.history import History
from callgate.agent.loop_settings import PRESETS, Budget, ModelSettings, Settings
from callgate.agent.run_events import AgentEvent, CallEnded, CallStarted, MessageBegan, MessageEnded, Notice, RunEnded
from callgate.agent.run_result import Exposed, Match, RunResult, Signal, Spent

if TYPE_CHECKING:
    from callgate.agent.compaction import Compaction, estimate_tokens, keep_last, summarise
    from callgate.agent.deliberate_mode import Deliberate

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
    "Deliberate": "deliberate_mode",
    "estimate_tokens": "compaction",
    "keep_last": "compaction",
    "summarise": "compaction",
}
"""Names that are imported on first use, because most agents do not need them, with the modules that define them."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'callgate.agent' has no attribute '{name}'")
    return getattr(import_module(f"callgate.agent.{_LATER[name]}"), name)
