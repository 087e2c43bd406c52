"""`callgate_middleware`: the tool calls of a Microsoft Agent Framework agent along the engine's route.

The framework's own handler runs inside the route, so that a tool gets its context, and other middleware keeps working.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from callgate.errors import CallgateError, UsageError

try:
    import agent_framework._tools as framework_tools
    from agent_framework import (
        Content,
        FunctionInvocationContext,
        FunctionMiddleware,
        MiddlewareFailure,
        MiddlewareTermination,
        MiddlewareTypes,
    )
    from agent_framework.exceptions import ToolException, UserInputRequiredException
except ModuleNotFoundError as error:
    raise UsageError("callgate.integrations.agent_framework needs Agent Framework: pip install 'agent-framework-core>=1.23'.") from error

from callgate.calls import Effect, Scope, Suspended
from callgate.engine import Engine
from callgate.integrations._agent_framework_messages import DENIED, UnusualCall, around_requests, turn
from callgate.integrations._agent_framework_tools import describe, encode, is_sync, output_of, plain
from callgate.integrations._agent_framework_warnings import warn_of_lost_record
from callgate.integrations.framework_call import (
    Framework,
    FrameworkCall,
    HumanDecision,
    is_on_route,
    record_decision,
    run_call,
    until_ended,
)
from callgate.integrations.open_questions import make_refusal
from callgate.integrations.wrapped_tools import WrappedTools
from callgate.integrations.wrapper_scopes import check_scope, placed_scope
from callgate.tools import ToolOptions

__all__ = ["callgate_middleware"]

Next = Callable[[], Awaitable[None]]
ScopeOf = Scope | Callable[[FunctionInvocationContext], Scope]
_NOBODY = Scope()
_APPROVED = getattr(framework_tools, "_APPROVED_ARGUMENTS_CONTEXT_KEY", "")
"""The key of the arguments that a human has approved. The framework refuses others, even if the human has given them to the engine."""
_AGENT_FRAMEWORK = Framework(
    name="agent_framework",
    encode=encode,
    pauses=(UserInputRequiredException, MiddlewareTermination),
    escapes=(MiddlewareFailure,),
    failures=(ToolException,),
    asks_again=True,
)


def callgate_middleware(
    engine: Engine,
    *,
    effects: Mapping[str, Effect] | None = None,
    options: Mapping[str, ToolOptions] | None = None,
    scope: ScopeOf = _NOBODY,
) -> list[MiddlewareTypes]:
    """Return the middleware that takes an agent's tool calls along the route: `Agent(..., middleware=callgate_middleware(engine))`.

    A failed call returns text that tells the model what to do. A call that a human has to decide about ends the run with
    a function approval request, whose `additional_properties` have the `question`. Answer it with
    `request.to_function_approval_response(approved=...)`; `additional_properties["reason"]` of the response is the reason
    of a denial. A call that is made again with the same id in the same session gets the stored result.

    The parts belong together. Put them last in the agent's list: `[mine, *callgate_middleware(engine)]`. What is listed
    before them wraps the call as a whole, and what is listed after them becomes part of the tool.

    Args:
        engine: The engine. Tools that it does not have are registered when they are called.
        effects: The effects of tools that the engine does not have. A tool without an entry is `once`.
        options: More options of those tools, such as `{"refund": {"key": "refund:{order}", "timeout_s": 20}}`.
        scope: For whom the calls run, or a function of the invocation's context that returns it. The run is the id of the session, and the
            conversation is the run, if the scope does not name them.

    Raises:
        UsageError: `engine` is not an engine, or an effect or option cannot be used; when the agent runs: it is for a tool that neither
            has. In a call, such mistakes are the cause of the framework's `MiddlewareFailure`, which ends the run.
    """
    tools = WrappedTools("callgate_middleware", engine, effects, options)
    check_scope(scope)
    unusual: dict[str, UnusualCall] = {}
    return [*around_requests(tools, engine, unusual), _CallgateMiddleware(engine, tools, scope, unusual)]


class _CallgateMiddleware(FunctionMiddleware):
    def __init__(self, engine: Engine, tools: WrappedTools, scope: ScopeOf, unusual: dict[str, UnusualCall]) -> None:
        self._engine, self._tools, self._scope, self._unusual = engine, tools, scope, unusual

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        """Make a call.

        Raises:
            MiddlewareFailure: The host has made a mistake, or the engine cannot go on. The framework would tell the model that the
                tool has failed, if it were another exception.
        """
        try:
            await self._make(context, call_next)
        except (*_AGENT_FRAMEWORK.pauses, *_AGENT_FRAMEWORK.escapes):
            raise
        except Exception as error:
            raise MiddlewareFailure(str(error)) from error

    async def _make(self, context: FunctionInvocationContext, call_next: Next) -> None:
        self._tools.add_once(context.function.name, context.function, describe)
        response = context.metadata.get("approval_response")
        said: Mapping[str, Any] = response.additional_properties if response is not None else {}
        denied, reason = DENIED in said, said.get(DENIED, "")
        call = self._call(context, call_next)
        if is_on_route(self._engine, call):
            await call_next()
            return
        if response is not None and not denied:
            warn_of_lost_record(self._engine, call)
        if denied:
            call.run = make_refusal(reason)
            await self._withdraw(said.get("approval_id", ""), reason)

        def decide(_: Suspended, problem: str) -> HumanDecision | None:
            if response is None or problem:
                return None
            return HumanDecision(allow=not denied, reason=reason)

        result = await run_call(self._engine, call, decide, said.get("approval_id", ""))
        if isinstance(result, Suspended):
            context.result = _approval_request(context, call, result)
            raise MiddlewareTermination("A human has to decide about a call.")
        context.result = output_of(self._engine, call, result)

    async def _withdraw(self, approval_id: str, reason: str) -> None:
        """Record a human's no, also if the question was answered with yes in the journal and no call has used that."""
        with suppress(CallgateError):  # it is answered, used up or expired; or the run is held, which the call reports
            await record_decision(self._engine, approval_id, HumanDecision(allow=False, reason=reason))

    def _call(self, context: FunctionInvocationContext, call_next: Next) -> FrameworkCall:
        given = plain(context.arguments)

        async def run(arguments: dict[str, Any]) -> Any:
            if arguments != given:
                context.arguments = arguments
                context.metadata.pop(_APPROVED, None)
            before = context.function.invocation_count
            try:
                await (until_ended(call_next()) if is_sync(context.function) else call_next())
            except MiddlewareTermination as end:
                if context.function.invocation_count == before:
                    raise  # the tool has not started, so that the call can be made again
                call.ended_by = end
            return context.result

        call_id = context.metadata.get("call_id") or str(uuid4())
        place, unusual = _place_of(context, call_id), self._unusual.pop(call_id, UnusualCall())
        call = FrameworkCall(
            framework=_AGENT_FRAMEWORK,
            name=context.function.name,
            arguments=unusual.text or given,
            id=call_id,
            scope=placed_scope(self._scope, context, place, turn.get()),
            is_cut=unusual.is_cut,
            place=place,
            run=run,
        )
        return call


def _place_of(context: FunctionInvocationContext, call_id: str) -> tuple[str, str]:
    """Return the ids of the session, which may be empty, and of the occurrence of the call."""
    session = context.session.session_id if context.session is not None else ""
    return session, context.metadata.get("function_call_occurrence_id") or call_id


def _approval_request(context: FunctionInvocationContext, call: FrameworkCall, asked: Suspended) -> Content:
    occurrence = context.metadata.get("function_call_occurrence_id")
    made = Content.from_function_call(call.id, call.name, arguments=plain(context.arguments), id=occurrence)
    shown = {"question": asked.question, "approval_id": asked.approval_id}
    return Content.from_function_approval_request(id=occurrence or call.id, function_call=made, additional_properties=shown)
