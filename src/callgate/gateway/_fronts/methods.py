"""Answer the requests that both eras of the protocol have, whatever the era of the client.

Results are made as in the latest revision; each front adapts them to its era. Knows no transport.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from callgate.gateway._client_calls import ClientCall
from callgate.gateway._server_features.offered_content import OfferedContent
from callgate.gateway._server_features.operator_tools import OPERATOR_TOOLS, OperatorTools
from callgate.gateway._server_features.startup import Startup
from callgate.gateway._server_features.tool_list import ToolLists
from callgate.gateway._tool_calls.tool_calls import unknown_tool
from callgate.gateway.principals import Principal
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError

__all__ = ["Answer", "Methods"]

_CONTENT = (
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
)
Answer = Callable[[ClientCall, Mapping[str, Any]], Awaitable[Message]]


class Methods:
    """Answers requests of one gateway's clients."""

    def __init__(self, lists: ToolLists, call: Answer, operator: OperatorTools, content: OfferedContent, startup: Startup) -> None:
        self._lists = lists
        self._make_call = call
        self._operator = operator
        self._content = content
        self._startup = startup
        self._answers: dict[str, Answer] = {"tools/list": self._tools, "tools/call": self._call}
        self._answers |= {method: partial(self._of_servers, method) for method in _CONTENT}

    def has(self, method: str) -> bool:
        return method in self._answers

    async def answer(self, method: str, call: ClientCall, params: Mapping[str, Any]) -> Message:
        """Return the result of a request, as soon as the servers have started.

        Raises:
            RpcError: The method is unknown, or the request cannot be answered.
        """
        answer = self._answers.get(method)
        if answer is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method[:100]}")
        await self._startup.wait()
        return await answer(call, params)

    def capabilities(self, principal: Principal) -> dict[str, Any]:
        """Return the capabilities of the gateway for a principal: those of its servers, and `logging`, as logs of calls are passed on."""
        return {"tools": {"listChanged": True}, **self._content.to(principal).capabilities(), "logging": {}}

    async def _of_servers(self, method: str, call: ClientCall, params: Mapping[str, Any]) -> Message:
        return await self._content.to(call.client.principal).answer(method, call, params)

    async def _tools(self, call: ClientCall, params: Mapping[str, Any]) -> Message:
        if params.get("cursor") is not None:
            raise RpcError(INVALID_PARAMS, "The list of tools has one page, so there is no cursor. Leave it out.")
        await self._content.refresh_tools()
        return {"tools": self._lists.of(call.client.principal, call.client.era)}

    async def _call(self, call: ClientCall, params: Mapping[str, Any]) -> Message:
        name, principal = params.get("name"), call.client.principal
        if not isinstance(name, str) or name not in OPERATOR_TOOLS:
            return await self._make_call(call, params)
        if principal.role != "operator":
            raise unknown_tool(name)
        return await self._operator.call(principal, name, params.get("arguments", {}))
