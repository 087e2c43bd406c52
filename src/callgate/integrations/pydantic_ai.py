"""`CallgateToolset` and `CallgateCapability`: the tool calls of a Pydantic AI agent along the engine's route.

The toolset wraps another one, the capability all tools of an agent. The wrapped toolset's own `call_tool` runs inside
the route, so that tools get their `RunContext` with the agent's dependencies. Pydantic AI has validated the arguments
before; the engine gets them as JSON data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from msgspec.structs import replace

from callgate.errors import UsageError

try:
    from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, RunContext, ToolFailed
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
except ModuleNotFoundError as error:
    raise UsageError("callgate.integrations.pydantic_ai needs Pydantic AI 2.68 or later: pip install 'pydantic-ai-slim>=2.68'.") from error

from callgate.calls import Effect, Scope, Suspended, ToolResult
from callgate.engine import Engine
from callgate.integrations._pydantic_ai_messages import asks_itself, denial, denied_calls, goes_on_with_record, made_by, recorded_answers
from callgate.integrations._pydantic_ai_tools import (
    declared,
    defined,
    encode,
    failure_text,
    has_files,
    in_thread_until_ended,
    is_sync,
    listed,
    plain,
    restore,
    timeout_of,
    without_timeout,
)
from callgate.integrations.framework_call import (
    FrameworkCall,
    HumanDecision,
    check_scope,
    is_on_route,
    run_call,
    scope_of,
    whole_value,
)
from callgate.integrations.import_tools import ToolDescription
from callgate.integrations.open_questions import OpenQuestions, was_asked
from callgate.integrations.wrapped_tools import WrappedTools
from callgate.tools import ToolOptions

__all__ = ["CallgateCapability", "CallgateToolset", "recorded_answers"]

_NOBODY = Scope()
_PAUSES = (ApprovalRequired, CallDeferred)
_FAILURES = (ModelRetry, ToolFailed)
ScopeOf = Scope | Callable[[RunContext[Any]], Scope]


@dataclass(init=False)
class CallgateToolset(WrapperToolset[Any]):
    """Takes the calls of a toolset's tools along the engine's route.

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
        scope: For whom the calls run, or a function of the run context that returns it. Conversation, message and call
            ids are Pydantic AI's own.
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
        super().__init__(_toolset(wrapped))
        self.engine, self.effects, self.options, self.scope = engine, effects, options, scope

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self.engine.start()  # refuses another event loop before two threads register the same tool
        await self._record_denials(ctx)
        tools = await super().get_tools(ctx)
        for name, one in tools.items():
            self._tools.add_once(name, declared(one) or one, partial(self._description, one))
        if self._tools.unregistered():
            self._tools.refuse_other_names([*self.engine.tools.names(), *(one.name for one in listed(self.wrapped))])
        return tools

    def _description(self, tool: ToolsetTool[Any], _: object) -> tuple[ToolDescription]:
        """Return a tool's description with the schema that its code declares, which is compared with that of a registered tool.

        A schema that is made anew for each step is not compared: that of a tool of a server, or of a tool with a `prepare` function.
        """
        registered = self.engine.tools.get(tool.tool_def.name)
        known = declared(tool)
        schema = known.tool_def.parameters_json_schema if known is not None else registered and registered.tool.parameters
        found = defined(tool.tool_def, timeout_s=timeout_of(tool))
        return (replace(found, parameters=schema) if schema else found,)

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        scope = self._placed(ctx)
        place = _place_of(ctx)
        if is_on_route(self.engine, name, ctx.tool_call_id or "", scope, place):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        given = plain(tool_args)
        asked = await self._asked(given, scope, ctx, tool)
        untimed = tool if timeout_of(tool) is None else without_timeout(tool)

        def run(arguments: dict[str, Any]) -> Awaitable[Any]:
            same = arguments == given
            valid = tool_args if same else tool.args_validator.validate_python(arguments, context=ctx.validation_context)
            work = self.wrapped.call_tool(name, valid, ctx, untimed)
            return in_thread_until_ended(work) if is_sync(tool) else work

        call = FrameworkCall(
            name=name,
            arguments=asked,
            id=ctx.tool_call_id or "",
            scope=scope,
            place=place,
            run=run,
            encode=encode,
            pauses=_PAUSES,
            failures=_FAILURES,
            origin="pydantic_ai",
            asks_again=True,
        )
        recorded = goes_on_with_record(ctx)
        if recorded and not await was_asked(self.engine, name, call.id, scope):
            raise ApprovalRequired(metadata={"question": asks_itself(name, call.id)})
        decide = partial(_approved, None if asked == given else given)
        result = await run_call(self.engine, call, decide if ctx.tool_call_approved and not recorded else None)
        if not isinstance(result, Suspended):
            return self._output(call, result)
        raise ApprovalRequired(metadata={"question": result.question, "approval_id": result.approval_id})

    async def _record_denials(self, ctx: RunContext[Any]) -> None:
        """Answer the engine's questions about the calls that a human has denied: Pydantic AI tells the model, and does not make them."""
        for denied in denied_calls(ctx):
            run = self._placed(dataclasses.replace(ctx, tool_name=denied.tool_name, tool_call_id=denied.tool_call_id)).run
            await OpenQuestions(self.engine).record_denials(run, partial(denial, denied))

    async def _asked(self, given: dict[str, Any], scope: Scope, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> dict[str, Any]:
        """Return the arguments of the call: those that the engine has asked about, if a human has approved it with others."""
        made = made_by(ctx)[1] if ctx.tool_call_approved else None
        if made is None:
            return given
        asked = plain(tool.args_validator.validate_python(made.args_as_dict(), context=ctx.validation_context))
        known = asked == given or await was_asked(self.engine, tool.tool_def.name, ctx.tool_call_id or "", scope)
        return asked if known else given

    def _placed(self, ctx: RunContext[Any]) -> Scope:
        """Return the scope of a call, with what identifies its run and its message."""
        scope = scope_of(self.scope, ctx)
        conversation, message = _place_of(ctx)
        return replace(
            scope,
            run=scope.run or conversation,
            conversation=scope.conversation or conversation,
            message_id=scope.message_id or message,
        )

    def _output(self, call: FrameworkCall, result: ToolResult) -> Any:
        if call.failed_with is not None and result.status == "error":
            raise call.failed_with
        if result.status != "ok":
            refused = result.failure_class in ("invalid_parameters", "malformed_arguments")
            raise (ModelRetry if refused else ToolFailed)(failure_text(result))
        shortened = result.metadata.truncated and not has_files(call.native)
        if call.unchanged(result) and not shortened and (result.metadata.truncated or len(result.content) == 1):
            return call.native
        return restore(whole_value(self.engine, result), result)


class _AgentToolset(CallgateToolset):
    """All tools of an agent with a `CallgateCapability`."""

    _wrapper = "CallgateCapability"


class CallgateCapability(AbstractCapability[Any]):
    """Takes the calls of all tools of an agent along the engine's route, as `CallgateToolset` does for one toolset.

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
        WrappedTools("CallgateCapability", engine, effects, options)  # refuses at once what the toolset of each run would refuse
        self._wrap = partial(_AgentToolset, engine=engine, effects=effects, options=options, scope=scope)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return self._wrap(toolset)


def _toolset(given: object) -> AbstractToolset[Any]:
    """Return the toolset that a wrapper was given, or one of the listed tools.

    Raises:
        UsageError: It is neither a toolset nor a list.
    """
    if isinstance(given, AbstractToolset):
        return given
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise UsageError(
            f"CallgateToolset was given {given!r:.80}; give a toolset, or a list of tools and functions: CallgateToolset([pay], engine)."
        )
    return FunctionToolset(list(given))


def _place_of(ctx: RunContext[Any]) -> tuple[str, str]:
    """Return the ids of the conversation, and of the model's message that made the call."""
    return ctx.conversation_id or ctx.run_id or "", made_by(ctx)[0]


def _approved(arguments: dict[str, Any] | None, suspended: Suspended, problem: str) -> HumanDecision:
    """Return the decision about a call that Pydantic AI has let through as approved.

    Args:
        arguments: Those that a human has given; None for the call's own.
    """
    if problem:
        raise ToolFailed(problem)
    return HumanDecision(allow=True, arguments=arguments)
