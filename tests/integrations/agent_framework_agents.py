"""A chat client of Microsoft Agent Framework that returns given messages, and agents that use it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from callgate import Engine, Scope
from callgate.integrations.agent_framework import callgate_middleware
from tests.integrations.contract import Call, Told

__all__ = ["ScriptedClient", "agent_of", "told_by", "told_in"]


class ScriptedClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Answers with the given messages, one after the other: calls, or a text. Keeps what it was asked in `seen`."""

    def __init__(self, *messages: Sequence[Call] | str) -> None:
        super().__init__()
        self._steps = iter(messages)
        self.seen: list[list[Message]] = []

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any) -> Any:
        self.seen.append(list(messages))
        step = next(self._steps)
        contents = [Content.from_text(step)] if isinstance(step, str) else [_content(one) for one in step]
        if stream:
            return ResponseStream(_updates(contents), finalizer=ChatResponse.from_updates)
        return _response(contents)


async def _response(contents: list[Content]) -> ChatResponse[Any]:
    return ChatResponse(messages=[Message("assistant", contents)])


async def _updates(contents: list[Content]) -> AsyncIterator[ChatResponseUpdate]:
    for content in contents:
        yield ChatResponseUpdate(role="assistant", contents=[content])


def _content(call: Call) -> Content:
    arguments: Any = call.arguments
    return Content.from_function_call(call.id, call.name, arguments=arguments if isinstance(arguments, str) else json.dumps(arguments))


def agent_of(engine: Engine, tools: Sequence[Any], *messages: Sequence[Call] | str, scope: Scope | None = None) -> Agent[Any]:
    """Return an agent whose model answers with these messages."""
    middleware = callgate_middleware(engine, scope=scope or Scope())
    return Agent(client=ScriptedClient(*messages), name="shop", tools=list(tools), middleware=middleware)


def told_by(agent: Agent[Any]) -> dict[str, Told]:
    """Return what the agent's model was told in its last message, see `told_in`."""
    assert isinstance(agent.client, ScriptedClient)
    return told_in(agent.client.seen[-1])


def told_in(messages: Sequence[Message]) -> dict[str, Told]:
    """Return the results of tools that the model read, by call id. They have no mark for errors; the engine's are JSON."""
    results = [content for message in messages for content in message.contents if content.type == "function_result"]
    return {str(one.call_id): Told(str(one.result), str(one.result).startswith('{"status":"')) for one in results}
