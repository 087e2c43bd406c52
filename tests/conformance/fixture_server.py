"""The server for the server scenarios of the conformance suite: made with the official SDK, both eras, over HTTP.

Run directly, the suite shows that the fixture is right; with a gateway in front, what the gateway changes. `python -m
tests.conformance.fixture_server PORT` serves it alone.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from tests.app_thread import AppThread
from tests.conformance.fixture_content import PROMPTS, RESOURCES, TEMPLATES, complete, get_prompt, read_resource
from tests.conformance.fixture_questions import Context
from tests.conformance.fixture_slow_tools import SLOW_TOOLS
from tests.conformance.fixture_tools import TOOLS, FixtureTool, text
from tests.mcp.http.sdk_server import StoredEvents

__all__ = ["FixtureServer", "fixture_app"]

_NAME: Final = "conformance-fixture"
_Handler = Callable[[Context, Any], Awaitable[Any]]


class FixtureServer:
    """The fixture on a free port, from `with` on."""

    def __init__(self) -> None:
        self._thread = AppThread(fixture_app())
        self.url = f"http://localhost:{self._thread.port}/mcp"

    def __enter__(self) -> FixtureServer:
        self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.__exit__()


class _Handlers:
    """Answers the requests of the suite."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._tools = {
            **TOOLS,
            **SLOW_TOOLS,
            "test_trigger_tool_change": FixtureTool(description="Say that the tools have changed.", run=self._change_tools),
            "test_trigger_prompt_change": FixtureTool(description="Say that the prompts have changed.", run=self._change_prompts),
        }

    async def list_tools(self, context: Context, params: Any) -> dict[str, Any]:
        listed = [{"name": name, "description": one.description, "inputSchema": one.schema} for name, one in self._tools.items()]
        return {"tools": listed}

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        if params.name not in self._tools:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await self._tools[params.name].run(context, params)

    async def _change_tools(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        await self.bus.publish(ToolsListChanged())
        return text("Said.")

    async def _change_prompts(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        await self.bus.publish(PromptsListChanged())
        return text("Said.")


async def _list_resources(context: Context, params: Any) -> dict[str, Any]:
    return {"resources": RESOURCES}


async def _list_templates(context: Context, params: Any) -> dict[str, Any]:
    return {"resourceTemplates": TEMPLATES}


async def _read_resource(context: Context, params: types.ReadResourceRequestParams) -> dict[str, Any]:
    return read_resource(str(params.uri))


async def _list_prompts(context: Context, params: Any) -> dict[str, Any]:
    return {"prompts": PROMPTS}


async def _complete(context: Context, params: types.CompleteRequestParams) -> dict[str, Any]:
    return complete()


async def _accept(context: Context, params: Any) -> dict[str, Any]:
    """Accept a subscription or a log level. Nothing here changes, and all logs are of one level."""
    return {}


def _typed(handler: _Handler, result: type[BaseModel]) -> _Handler:
    """Return the handler with the SDK's type of result, which adds the fields that an era wants in each."""

    async def typed(context: Context, params: Any) -> Any:
        found = await handler(context, params)
        return (types.InputRequiredResult if found.get("resultType") == "input_required" else result).model_validate(found)

    return typed


def fixture_app() -> Any:
    """Return the fixture as an ASGI application with the path `/mcp`."""
    handlers = _Handlers()
    server: Server[Any] = Server(_NAME, version="1.0.0")
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=_NAME))
    for method, params, result, handler in (
        ("tools/list", types.PaginatedRequestParams, types.ListToolsResult, handlers.list_tools),
        ("tools/call", types.CallToolRequestParams, types.CallToolResult, handlers.call_tool),
        ("resources/list", types.PaginatedRequestParams, types.ListResourcesResult, _list_resources),
        ("resources/templates/list", types.PaginatedRequestParams, types.ListResourceTemplatesResult, _list_templates),
        ("resources/read", types.ReadResourceRequestParams, types.ReadResourceResult, _read_resource),
        ("resources/subscribe", types.SubscribeRequestParams, types.EmptyResult, _accept),
        ("resources/unsubscribe", types.UnsubscribeRequestParams, types.EmptyResult, _accept),
        ("prompts/list", types.PaginatedRequestParams, types.ListPromptsResult, _list_prompts),
        ("prompts/get", types.GetPromptRequestParams, types.GetPromptResult, get_prompt),
        ("completion/complete", types.CompleteRequestParams, types.CompleteResult, _complete),
        ("logging/setLevel", types.SetLevelRequestParams, types.EmptyResult, _accept),
    ):
        server.add_request_handler(method, params, _typed(handler, result))
    server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, ListenHandler(handlers.bus))
    return server.streamable_http_app(event_store=StoredEvents(), retry_interval=20)


if __name__ == "__main__":
    uvicorn.run(fixture_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
