"""`CallgateToolset` and `CallgateCapability`: the tool calls of a Pydantic AI agent along the engine's route.

The toolset wraps another one, the capability all tools of an agent. The wrapped toolset's own `call_tool` runs inside
the route, so that tools get their `RunContext` with the agent's dependencies. Pydantic AI has validated the arguments
before; the engine gets them as JSON data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from callgate.errors import UsageError

try:
    from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, RunContext, ToolFailed
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.output import OutputContext
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
except ModuleNotFoundError as error:
    raise UsageError("callgate.integrations.pydantic_ai needs Pydantic AI 2.68 or later: pip install 'pydantic-ai-slim>=2.68'.") from error

from callgate.calls import Effect, Scope, Suspended
from callgate.engine import Engine
from callgate.integrations._pydantic_ai_answers import is_started_elsewhere, record_answers
from callgate.integrations._pydantic_ai_defaults import first_arguments, read_again, with_first_defaults
from callgate.integrations._pydantic_ai_edits import asked_arguments, given_arguments, note_answer, watch_validation
from callgate.integrations._pydantic_ai_messages import (
    asks_itself,
    goes_on_with_record,
    is_cut,
    place_of,
    recorded_answers,
    wait_until_answered,
)
from callgate.integrations._pydantic_ai_outputs import check_output_function
from callgate.integrations._pydantic_ai_results import encode, output_of
from callgate.integrations._pydantic_ai_tools import (
    check_names,
    declared_tool,
    describe_in_step,
    plain,
    start_tool,
    toolset_of,
)
from callgate.integrations._pydantic_ai_warnings import remember_run, warn_of_repeats
from callgate.integrations.framework_call import Framework, FrameworkCall, HumanDecision, is_on_route, run_call
from callgate.integrations.open_questions import record_edit, refusal_by, was_asked
from callgate.integrations.wrapped_tools import WrappedTools
from callgate.integrations.wrapper_scopes import check_scope, placed_scope
from callgate.tools import ToolOptions

__all__ = ["CallgateCapability", "CallgateToolset", "recorded_answers"]

_NOBODY = Scope()
_PYDANTIC_AI = Framework(
    name="pydantic_ai",
    encode=encode,
    pauses=(ApprovalRequired, CallDeferred),
    is_started_elsewhere=is_started_elsewhere,
    failures=(ModelRetry, ToolFailed),
    asks_again=True,
    validates=True,
)
ScopeOf = Scope | Callable[[RunContext[Any]], Scope]


@dataclass(init=False)
class CallgateToolset(WrapperToolset[Any]):
    """Runs the calls of a toolset's tools on the engine.

    A call that fails becomes a failed tool return (`ToolFailed`) that says what to do next and does not use up the
    tool's retries; only arguments that the engine refuses do (`ModelRetry`). A call that a human has to decide about
    raises `ApprovalRequired`, so the run ends with `DeferredToolRequests`; `ToolApproved`, with or without other
    arguments, answers the engine's question. A call that is made again with the same id in the same conversation gets
    the stored result.

    Args:
        wrapped: A toolset, or a list of tools and functions.
        engine: The engine, made with `Engine(import_tools(tools, effects={...}))`.
        effects: The effects of tools that the engine does not have, such as those of an MCP server, which are
            registered when the agent lists them. A tool without an entry is `once`.
        options: More options of those tools, such as `{"refund": {"key": "refund:{order}", "timeout_s": 20}}`.
        scope: For whom the calls run, or a function of the run context that returns it. Message and call ids are Pydantic AI's own, as is
            the id of the conversation, unless the scope names a run, which is the conversation then, too.
    """

    engine: Engine
    effects: Mapping[str, Effect] | None
    options: Mapping[str, ToolOptions] | None
    scope: ScopeOf
    _wrapper: ClassVar[str] = "CallgateToolset"
    """The name of what the user has made, for messages."""

    def __init__(
        self,
        wrapped: AbstractToolset[Any] | Sequence[Any],
        engine: Engine,
        *,
        effects: Mapping[str, Effect] | None = None,
        options: Mapping[str, ToolOptions] | None = None,
        scope: ScopeOf = _NOBODY,
    ) -> None:
        self._tools = WrappedTools(self._wrapper, engine, effects, options)
        check_scope(scope)
        super().__init__(toolset_of(wrapped))
        self.engine, self.effects, self.options, self.scope = engine, effects, options, scope

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self.engine.start()  # refuses another event loop before two threads register the same tool
        remember_run(self.engine, ctx)
        await record_answers(self.engine, ctx, self.scope)
        tools = await super().get_tools(ctx)
        for name, one in tools.items():
            self._tools.add_once(name, declared_tool(one) or one, partial(describe_in_step, one, self.engine.tools.get(name)))
        if self._tools.unregistered():
            check_names(self._tools, self.wrapped, self.engine.tools.names())
        return {name: watch_validation(self.engine, one) for name, one in tools.items()}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        validated, place = plain(tool_args, tool), place_of(ctx)
        scope, call_id = placed_scope(self.scope, ctx, place, ctx.run_id or ""), ctx.tool_call_id or ""
        first, raw = await first_arguments(self.engine, name, validated, scope, ctx, tool), given_arguments(self.engine, ctx)
        given = with_first_defaults(validated, raw, first)

        def run(arguments: dict[str, Any]) -> Awaitable[Any]:
            if call.arguments != given and arguments == call.arguments and (refusal := refusal_by(edit, arguments)) is not None:
                raise refusal
            valid = tool_args if arguments == validated else read_again(arguments, raw, validated, ctx, tool)
            return start_tool(self.wrapped, name, valid, ctx, tool)

        edit = HumanDecision(allow=True, arguments=given)

        def decide(_: Suspended, problem: str) -> HumanDecision:
            if problem:
                raise ToolFailed(problem)
            return edit if call.arguments != given else HumanDecision(allow=True)

        call = FrameworkCall(framework=_PYDANTIC_AI, name=name, arguments=given, id=call_id, scope=scope, place=place, run=run)
        call.is_cut = is_cut(ctx)
        if is_on_route(self.engine, call):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        warn_of_repeats(self.engine, call, ctx)
        recorded = goes_on_with_record(ctx)
        if recorded and not await was_asked(self.engine, call):
            raise ApprovalRequired(metadata={"question": asks_itself(name, call_id)})
        if ctx.tool_call_approved:
            call.arguments = await asked_arguments(self.engine, call, validated, first, ctx, tool)
            if call.arguments != given:
                await record_edit(self.engine, call, edit, wait_until_answered(ctx), is_external=self._tools.is_external(name))
        result = await run_call(self.engine, call, decide if ctx.tool_call_approved and not recorded else None, wait_until_answered(ctx))
        if not isinstance(result, Suspended):
            return output_of(self.engine, call, result)
        raise ApprovalRequired(metadata={"question": result.question, "approval_id": result.approval_id})


class _AgentToolset(CallgateToolset):
    """All tools of an agent with a `CallgateCapability`."""

    _wrapper = "CallgateCapability"


class CallgateCapability(AbstractCapability[Any]):
    """Runs the calls of all tools of an agent on the engine, as `CallgateToolset` does for one toolset.

    Args:
        engine: The engine. It may be made without tools.
        effects: The effects of tools that the engine does not have. A tool without an entry is `once`.
        options: More options of those tools, such as `{"refund": {"key": "refund:{order}", "timeout_s": 20}}`.
        scope: For whom the calls run, or a function of the run context that returns it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        effects: Mapping[str, Effect] | None = None,
        options: Mapping[str, ToolOptions] | None = None,
        scope: ScopeOf = _NOBODY,
    ) -> None:
        super().__init__()
        check_scope(scope)
        self._tools = WrappedTools("CallgateCapability", engine, effects, options)  # refuses at once what the toolset of each run would
        self._engine, self._wrap = engine, partial(_AgentToolset, engine=engine, effects=effects, options=options, scope=scope)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return self._wrap(toolset)

    async def before_tool_validate(self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: object, args: Any) -> Any:
        note_answer(self._engine, ctx, call)
        return args

    async def before_output_process(self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any) -> Any:
        check_output_function(self._engine, self._tools, output_context)
        return output
