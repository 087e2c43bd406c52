"""`callgate_tools`: the function tools of an OpenAI Agents SDK agent along the engine's route.

A tool stays the SDK's own, with its guardrails, hooks and run context; its invocation, its approval and its errors are the engine's. The
SDK itself tells the model when a human has denied a call, so the engine records that before the model's next turn.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, get_type_hints
from weakref import WeakSet

from msgspec.structs import replace

from callgate.errors import CallgateError, UsageError

try:
    from agents import FunctionTool, RunContextWrapper
    from agents.tool_context import ToolContext as CallContext
except ModuleNotFoundError as error:
    raise UsageError("callgate.integrations.openai_agents needs the OpenAI Agents SDK: pip install 'openai-agents>=0.24'.") from error

from callgate._json import json_text
from callgate.calls import Effect, RawCall, Scope, Suspended
from callgate.engine import Engine
from callgate.integrations._openai_agents_denials import denials_in, was_told_too_late
from callgate.integrations._openai_agents_runs import run_id_of, run_of_call
from callgate.integrations._openai_agents_tools import (
    as_it_is,
    describe,
    function_tool,
    invoke,
    is_cut,
    is_routed,
    is_sync,
    listed_tools,
    output_of,
    raising,
    value_of,
)
from callgate.integrations.framework_call import Framework, FrameworkCall, HumanDecision, is_on_route, run_call
from callgate.integrations.journaled_calls import read_journal, recorded_call_id, recorded_scope
from callgate.integrations.open_questions import OpenQuestions, only_ask
from callgate.integrations.wrapped_tools import WrappedTools
from callgate.integrations.wrapper_scopes import check_scope, in_turn, scope_of, two_scopes
from callgate.tools import ToolOptions

__all__ = ["callgate_tools"]

ScopeOf = Scope | Callable[[RunContextWrapper[Any]], Scope]
_NOBODY = Scope()
_OPENAI_AGENTS = Framework(name="openai-agents", encode=as_it_is)


def callgate_tools(
    tools: Iterable[Any],
    engine: Engine,
    *,
    effects: Mapping[str, Effect] | None = None,
    options: Mapping[str, ToolOptions] | None = None,
    scope: ScopeOf = _NOBODY,
) -> list[Any]:
    """Return the tools for an agent, with function tools whose calls take the engine's route.

    A failed call returns text that tells the model what to do. A call that a human has to decide about interrupts the
    run: answer with `state.approve(...)` or `state.reject(..., rejection_message=...)`, and run the state. A call that is
    made again, because a state is run again, gets the stored result. Calls of two runs are never the same call, unless the
    scope names the run.

    Args:
        tools: The SDK's tools, and tools of callgate. Hosted tools and agents as tools are returned unchanged.
        engine: The engine. Tools that it does not have are registered.
        effects: The effects of tools that the engine does not have. A tool without an entry is `once`.
        options: More options of those tools, such as `{"refund": {"key": "refund:{order}", "timeout_s": 20}}`.
        scope: For whom the calls run, or a function of the run context that returns it. Without a `run` in it,
            each run of the SDK gets an id, which its `RunState` keeps.

    Raises:
        UsageError: `engine` is not an engine, an item is not a tool, or a tool cannot be registered.
    """
    listed = listed_tools(tools)
    described = [one for tool in listed for one in describe(tool) or ()]
    check_scope(scope)
    wrapped = WrappedTools("callgate_tools", engine, effects, options)
    wrapped.refuse_other_names(one.name for one in described)
    wrapped.add(described)
    questions = OpenQuestions(engine)
    return [_wrap(tool, engine, scope, questions) if is_routed(tool) else tool for tool in listed]


def _wrap(tool: Any, engine: Engine, scope: ScopeOf, questions: OpenQuestions) -> FunctionTool:
    """Return the tool with its calls on the engine's route, which they may take already.

    Raises:
        UsageError: They take it with another scope.
    """
    own = function_tool(tool, engine)
    known = getattr(own.on_invoke_tool, "__self__", None)
    if not isinstance(known, _Route) or known.engine is not engine:
        return _Route(engine, scope, questions, own).tool()
    if known.scope == scope:
        return own
    if isinstance(known.scope, Scope) and isinstance(scope, Scope):
        raise two_scopes(own.name, known.scope, scope)
    raise UsageError(f"callgate_tools was given {own.name} as an earlier callgate_tools has returned it, with another scope. Give it once.")


class _Route:
    """The route of one tool's calls."""

    def __init__(self, engine: Engine, scope: ScopeOf, questions: OpenQuestions, own: FunctionTool) -> None:
        self.engine, self.scope, self._questions, self._own = engine, scope, questions, own
        self._name, self._raising, self._is_sync = own.name, raising(own), is_sync(own)
        self._named: WeakSet[RunContextWrapper[Any]] = WeakSet()
        """The contexts whose run has an id."""

    def tool(self) -> FunctionTool:
        made = copy.copy(self._own)
        made.on_invoke_tool = self._invoke
        made.is_enabled = self._is_enabled
        made.timeout_seconds = None  # it is the engine's, see ToolDescription
        if self.engine.may_ask:
            made.needs_approval = self._needs_approval
        return made

    def _scope(self, context: RunContextWrapper[Any]) -> Scope:
        """Return the scope of a run's calls. Runs without a name are distinguished by the id that the wrapper gives them."""
        scope, run = scope_of(self.scope, context), run_id_of(context)
        return in_turn(replace(scope, run=scope.run or run), run)

    async def _call(self, context: RunContextWrapper[Any], call_id: str, arguments: Any, name: str = "") -> FrameworkCall:
        """Return a call. One that was made before stays that of its user, also if its state is resumed with another run context."""
        scope, run, name = self._scope(context), run_of_call(context, self.engine, name or self._name), name or self._name
        scope = made = replace(scope, message_id=scope.message_id or call_id)
        if callable(self.scope) and scope.tick == run:
            raw = RawCall(name=name, arguments=arguments, id=recorded_call_id(call_id))
            made = await read_journal(self.engine.journal, lambda: recorded_scope(self.engine.journal, raw, scope, self.engine.redactor))
        return FrameworkCall(framework=_OPENAI_AGENTS, name=name, arguments=arguments, id=call_id, scope=made, place=(run,), run=only_ask)

    async def _invoke(self, context: CallContext[Any], arguments: str) -> Any:
        def decide(_: Suspended, problem: str) -> HumanDecision | None:
            return HumanDecision(allow=True) if not problem and context.is_tool_approved(self._name, context.tool_call_id) else None

        call = await self._call(context, context.tool_call_id, arguments)
        if is_on_route(self.engine, call):
            return await invoke(self._raising, context, arguments, sync=self._is_sync)
        call.run, call.is_cut = lambda final: invoke(self._raising, context, json_text(final), sync=self._is_sync), is_cut(context)
        result = await run_call(self.engine, call, decide)
        if isinstance(result, Suspended):
            return f"{self._name} was not run: a human has to decide about it first. {result.question}"
        if context.is_tool_approved(self._name, context.tool_call_id):
            self._questions.add(call)
        return output_of(self.engine, call, result)

    async def _needs_approval(self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        if context.is_tool_approved(self._name, call_id):
            return True  # the engine must not ask anew before `_invoke` has compared the question with the one that was answered
        call = await self._call(context, call_id, arguments)
        if await value_of(self._own.needs_approval, context, arguments, call_id):
            self._questions.add(call)
            return True
        try:
            raw = RawCall(name=call.name, arguments=arguments, id=recorded_call_id(call_id), origin=call.framework.name)
            asked = await run_call(self.engine, call) if await self.engine.asks_human(raw, call.scope) else None
        except CallgateError:
            return False  # the invocation reports it
        if isinstance(asked, Suspended):
            self._questions.add(call, asked.approval_id)
        return isinstance(asked, Suspended)

    def _is_enabled(self, context: RunContextWrapper[Any], agent: Any) -> bool | Awaitable[bool]:
        if context not in self._named:
            self._scope(context)  # before the first call, so that each saved state has the id of the run
            self._named.add(context)
        if self.engine.may_ask or self._own.needs_approval:
            return self._enabled_after_denials(context, agent)
        own = self._own.is_enabled
        return own(context, agent) if callable(own) else own

    async def _enabled_after_denials(self, context: RunContextWrapper[Any], agent: Any) -> bool:
        for denied, reason in await self._questions.record_denials(self._scope(context), denials_in(context), self._name):
            call = await self._call(context, denied.id, denied.arguments, denied.name)
            if await was_told_too_late(self.engine, context, agent, call, reason):
                self._questions.add(call)
        return await value_of(self._own.is_enabled, context, agent)


# The SDK reads them before each call, and would compile their texts each time.
_Route._invoke.__annotations__ = get_type_hints(_Route._invoke)
