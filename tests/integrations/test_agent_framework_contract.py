"""The promises of a wrapper, with agents of Microsoft Agent Framework."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_framework import AgentSession, Message
from agent_framework import tool as framework_tool

from callgate import Engine
from tests.integrations.agent_framework_agents import agent_of, told_by
from tests.integrations.contract import Call, Said, Told, WrapperContract


async def _answer(engine: Engine, request: Any, says: Mapping[str, Said]) -> Any:
    said = says[request.function_call.call_id]
    if said.arguments is not None:  # the framework's approvals have no arguments, the engine's have
        await engine.approve(request.additional_properties["approval_id"], arguments=said.arguments)
    response = request.to_function_approval_response(approved=said.allow)
    if said.reason:
        response.additional_properties["reason"] = said.reason
    return response


class TestCallgateMiddleware(WrapperContract):
    def tool(self, function: Callable[..., Any]) -> Any:
        return framework_tool(function)

    async def run(
        self,
        engine: Engine,
        tools: Sequence[Any],
        message: Sequence[Call],
        *,
        then: Sequence[Sequence[Call]] = (),
        says: Mapping[str, Said] | None = None,
    ) -> dict[str, Told]:
        agent, session = agent_of(engine, tools, message, *then, "done"), AgentSession(session_id="session")
        result = await agent.run("go", session=session)
        while result.user_input_requests:
            assert says is not None, result.user_input_requests
            answers = [await _answer(engine, one, says) for one in result.user_input_requests]
            result = await agent.run(Message("user", answers), session=session)
        assert result.text == "done"
        return told_by(agent)

    async def make_again(self, engine: Engine, tools: Sequence[Any], message: Sequence[Call]) -> list[dict[str, Told]]:
        asking = [copy.copy(tool) for tool in tools]
        for tool in asking:
            tool.approval_mode = "always_require"
        agent, session = agent_of(engine, asking, message, "done", "done"), AgentSession(session_id="session")
        result = await agent.run("go", session=session)
        saved = json.dumps(session.to_dict())
        found = []
        for _ in range(2):
            answers = [one.to_function_approval_response(approved=True) for one in result.user_input_requests]
            await agent.run(Message("user", answers), session=AgentSession.from_dict(json.loads(saved)))
            found.append(told_by(agent))
        return found
