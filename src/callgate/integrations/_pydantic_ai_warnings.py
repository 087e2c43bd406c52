"""Warnings about runs of Pydantic AI whose calls may be made again with nobody knowing of the first time.

Each is logged once for an engine, and only if a call of a tool with an effect is made. A run of an engine with a journal in memory is
remembered, so that a call is recognised that another process, or another engine, may have made already.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelResponse

from callgate.engine import Engine
from callgate.integrations.framework_call import FrameworkCall

__all__ = ["remember_run", "warn_of_repeats"]

log = logging.getLogger("callgate")
_LOST_RECORD = (
    "%s, but the journal of its engine is in memory: if a process ends while %s or another tool with an effect runs, the agent that goes on"
    " runs the tool again, also with a key, and nobody is told. Give the engine a journal that survives:"
    " Engine(journal=SqliteJournal('calls.db'))."
)
_DURABLE = "This agent runs in a durable workflow, which goes on after the process"
_OTHER_RUN = "The model's message with this call is from a run that this engine has not seen"
_NEW_CONVERSATION = (
    "This durable agent begins a new conversation each time that its workflow is recovered, so that the engine takes an interrupted call of"
    " %s for a new one, and runs it again. Give agent.run(..., conversation_id=...), or name the run in the scope of the wrapper:"
    " Scope(run=...) with the id of the workflow; or use DBOSDurability instead of the deprecated DBOSAgent."
)
_NEW_MESSAGE = (
    "PrefectAgent asks the model again each time that a flow is retried, so that the engine takes the calls of %s, those that have ended"
    " included, for new ones, and runs them again. Use PrefectDurability instead of the deprecated PrefectAgent, or give the tool a key."
)
_MOST_RUNS = 10_000
_runs: WeakKeyDictionary[Engine, dict[str | None, None]] = WeakKeyDictionary()
"""The ids of the latest `_MOST_RUNS` runs that each engine with a journal in memory has seen."""
_warned_of_record: WeakSet[Engine] = WeakSet()
_warned_of_repeats: WeakSet[Engine] = WeakSet()


def remember_run(engine: Engine, ctx: RunContext[Any]) -> None:
    """Remember that the engine sees the calls of this run."""
    if engine.journal.strength == "memory" and engine not in _warned_of_record:
        seen = _runs.setdefault(engine, {})
        seen[ctx.run_id] = None
        if len(seen) > _MOST_RUNS:
            del seen[next(iter(seen))]


def warn_of_repeats(engine: Engine, call: FrameworkCall, ctx: RunContext[Any]) -> None:
    """Log what may repeat the effect of a call, unless it was logged before."""
    tool = engine.tools.get(call.name)
    if tool is None or tool.effect == "none":
        return
    of_model = type(ctx.model).__module__
    is_deprecated, is_prefect = of_model.startswith("pydantic_ai.durable_exec."), of_model.startswith("pydantic_ai.durable_exec.prefect.")
    if engine.journal.strength == "memory" and engine not in _warned_of_record:
        is_durable = is_deprecated or ctx.in_durable_context
        if is_durable or _run_that_made(ctx) not in _runs.get(engine, ()):
            _warned_of_record.add(engine)
            _runs.pop(engine, None)
            log.warning(_LOST_RECORD, _DURABLE if is_durable else _OTHER_RUN, call.name)
    repeats = is_prefect or (is_deprecated and _is_new_conversation(call, ctx))
    if repeats and tool.effect_key is None and engine not in _warned_of_repeats:
        _warned_of_repeats.add(engine)
        log.warning(_NEW_MESSAGE if is_prefect else _NEW_CONVERSATION, call.name)


def _run_that_made(ctx: RunContext[Any]) -> str | None:
    """Return the id of the run in which the model made the call; None if its message has none."""
    for message in reversed(ctx.messages):
        if isinstance(message, ModelResponse) and any(one.tool_call_id == ctx.tool_call_id for one in message.tool_calls):
            return message.run_id
    return ctx.run_id


def _is_new_conversation(call: FrameworkCall, ctx: RunContext[Any]) -> bool:
    """Return whether the run of a call is a conversation whose id Pydantic AI has made for this run, as far as that can be seen."""
    if call.scope.run != ctx.conversation_id or any(message.run_id != ctx.run_id for message in ctx.messages):
        return False
    try:
        return UUID(ctx.conversation_id).version == 7
    except ValueError:
        return False
