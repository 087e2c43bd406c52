"""Handles what function middleware of Microsoft Agent Framework does not see: the agent's tools, denials, and malformed or cut calls.

When a human denies a call, the framework tells the model so itself, without a reason. So a denied call is handed on as a call, with a mark,
and `callgate_middleware` takes it to the engine, which records the denial and tells the model who denied it and why; the tool cannot run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import agent_framework._tools as framework_tools
from agent_framework import (
    AgentContext,
    AgentMiddleware,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    Content,
    FunctionTool,
    MiddlewareTypes,
)
from msgspec import Struct

from callgate.engine import Engine
from callgate.integrations._agent_framework_warnings import remember_calls
from callgate.integrations.cut_calls import cut_calls
from callgate.integrations.wrapped_tools import WrappedTools

__all__ = ["DENIED", "UnusualCall", "around_requests", "turn"]

DENIED = "callgate_denied"
"""The mark of a denied call in the properties of its approval response; its value is the reason."""
_MOST_UNUSUAL = 1_000

# The framework has no public names for the answers that it waits for.
_load_pending: Callable[..., dict[str, Content]] = getattr(framework_tools, "_load_pending_approval_requests", lambda session: {})
_store_group: Callable[..., None] = getattr(framework_tools, "_store_already_approved_approval_requests", lambda *_: None)
_STATE = getattr(framework_tools, "_TOOL_APPROVAL_STATE_KEY", "")
_GROUPS = getattr(framework_tools, "_ALREADY_APPROVED_APPROVAL_REQUEST_GROUPS_KEY", "")
_ANSWERS = getattr(framework_tools, "_APPROVAL_RESPONSES_KEY", "")
_REQUEST_ID = getattr(framework_tools, "_APPROVAL_REQUEST_ID_KEY", "")

Next = Callable[[], Awaitable[None]]
turn: ContextVar[str] = ContextVar("callgate turn", default="")
"""The id of the agent's run that a call is made in."""


class UnusualCall(Struct, frozen=True, kw_only=True):
    """What function middleware does not see of a call."""

    text: str = ""
    """The arguments, if they are not a JSON object; else empty."""
    is_cut: bool = False
    """Whether the response ended before the call was complete."""


def around_requests(tools: WrappedTools, engine: Engine, unusual: dict[str, UnusualCall]) -> list[MiddlewareTypes]:
    """Return the middleware that sees an agent's messages and requests.

    Args:
        tools: The tools of the wrapper.
        unusual: Gets the calls that are malformed or cut, by their ids.
    """
    return [_BeginTurn(), _HandOnDenials(), _AwaitAllAnswers(), _RefuseOtherNames(tools, engine), _ReadCalls(engine, unusual)]


class _BeginTurn(AgentMiddleware):
    """Assigns an id to each run of an agent, because the framework has none."""

    async def process(self, context: AgentContext, call_next: Next) -> None:
        turn.set(uuid4().hex)
        await call_next()


class _AwaitAllAnswers(AgentMiddleware):
    """Makes the framework wait for the answers to all requests of a message, as it does for those of its own `approval_mode`.

    Otherwise it would continue after the first answer and send the model calls without results, which providers refuse. Until all
    answers have arrived, the latest answer to a request counts.
    """

    async def process(self, context: AgentContext, call_next: Next) -> None:
        pending = _load_pending(context.session)
        asked = {key: one for key, one in pending.items() if "approval_id" in one.additional_properties}
        groups = _request_groups(context.session)
        if len(asked) > 1 and not any(asked.keys() & set(group["approval_request_ids"]) for group in groups):
            _store_group(context.session, list(asked.values()), ())
        answers = {one.id: one for message in context.messages for one in message.contents if one.type == "function_approval_response"}
        for stored in [one for group in groups for one in group.get(_ANSWERS, ())]:
            request_id = stored["additional_properties"][_REQUEST_ID]
            if request_id in asked and (latest := answers.get(request_id)) is not None:
                stored["approved"] = latest.approved
                stored["additional_properties"] = {**latest.additional_properties, _REQUEST_ID: request_id}
        await call_next()


def _request_groups(session: AgentSession | None) -> list[dict[str, Any]]:
    """Return the groups of requests of which the framework awaits all answers, with the answers that have come."""
    return [] if session is None else session.state.get(_STATE, {}).get(_GROUPS, [])


class _HandOnDenials(AgentMiddleware):
    """Passes denied calls on as calls, so that the engine answers them. If a request has several answers, only the latest is passed on."""

    async def process(self, context: AgentContext, call_next: Next) -> None:
        answers = [content for message in context.messages for content in message.contents if _is_answer(content)]
        latest = {content.id: content for content in answers}
        for message in context.messages:
            message.contents = [
                _as_approval(content) for content in message.contents if not _is_answer(content) or latest[content.id] is content
            ]
        await call_next()


def _is_answer(content: Content) -> bool:
    return content.type == "function_approval_response" and "approval_id" in content.additional_properties


def _as_approval(content: Content) -> Content:
    given = content.additional_properties
    if not _is_answer(content) or content.approved or content.function_call is None:
        return content
    return Content.from_function_approval_response(
        True, content.id or "", content.function_call, additional_properties={**given, DENIED: str(given.get("reason", ""))}
    )


class _RefuseOtherNames(ChatMiddleware):
    """Refuses effects and options for tools that neither the agent nor the engine has, as soon as the agent's tools are known."""

    def __init__(self, tools: WrappedTools, engine: Engine) -> None:
        self._tools, self._engine = tools, engine

    async def process(self, context: ChatContext, call_next: Next) -> None:
        """Refuse unknown entries, then continue with the request.

        Raises:
            UsageError: There is such an entry.
        """
        if self._tools.unregistered():
            names = [str(one.name) for one in (context.options or {}).get("tools") or () if isinstance(one, FunctionTool)]
            self._tools.refuse_other_names([*self._engine.tools.names(), *names])
        await call_next()


class _ReadCalls(ChatMiddleware):
    """Remembers the model's calls, and of those that are malformed or cut, what function middleware does not get."""

    def __init__(self, engine: Engine, unusual: dict[str, UnusualCall]) -> None:
        self._engine, self._unusual = engine, unusual

    async def process(self, context: ChatContext, call_next: Next) -> None:
        if context.stream:
            context.stream_result_hooks.append(self._keep)
        await call_next()
        if isinstance(context.result, ChatResponse):
            self._keep(context.result)

    def _keep(self, response: ChatResponse[Any]) -> ChatResponse[Any]:
        remember_calls(self._engine, response)
        calls = [one for message in response.messages for one in message.contents if one.type == "function_call" and one.call_id]
        cut = cut_calls([str(one.call_id) for one in calls], response.finish_reason)
        for one in calls:
            call = UnusualCall(text=_malformed_text(one), is_cut=one.call_id in cut)
            self._unusual.pop(str(one.call_id), None)
            if call.text or call.is_cut:
                self._unusual[str(one.call_id)] = call
        while len(self._unusual) > _MOST_UNUSUAL:
            del self._unusual[next(iter(self._unusual))]
        return response


def _malformed_text(call: Content) -> str:
    """Return the text of a call's arguments if it is not a JSON object; else an empty text."""
    text = call.arguments
    return text if isinstance(text, str) and call.parse_arguments() == {"raw": text} else ""
