"""`McpTool`: a tool of an MCP server, as a tool of the engine.

The server's definition is used unchanged: its schema, its description and its names; only integers that no argument can have are read as
floats to check arguments. What it says of its own effects is not believed; the
operator's settings decide. A call waits until the server runs, is sent once, and ends as the server's answer says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from callgate._schema.large_integers import with_readable_integers
from callgate._server_processes.server_executions import execution_of_failure
from callgate.calls import Effect
from callgate.mcp._call_results import execution_of_error, execution_of_result
from callgate.mcp._connection import LOOK_FIRST, McpError, Message
from callgate.mcp._messages import RpcError
from callgate.mcp._running_requests import Caller
from callgate.mcp._tool_changes import Definition
from callgate.mcp.calling_client import calling_client
from callgate.mcp.server_config import McpServer
from callgate.protocols import Execution
from callgate.tools import ToolContext
from callgate.tools.attribute_options import set_options
from callgate.tools.prefixed_names import prefixed_name
from callgate.tools.tool_declaration import Tool

__all__ = ["CallsTools", "McpTool"]


class CallsTools(Protocol):
    """Carries calls to a server that is kept running."""

    async def call_tool(self, definition: Definition, arguments: Mapping[str, Any], caller: Caller) -> Message:
        """Send one call once the server runs; see `Session.call_tool`.

        Args:
            definition: The tool as it was described when the call was judged.
            caller: Who calls, which also decides on the session.

        Raises:
            NotSent: The server cannot be started, does not take the call in time, or no longer offers this tool with this definition.
        """
        ...


class McpTool(Tool):
    """A tool of an MCP server.

    Args:
        server: The configuration of its server.
        definition: The tool as the server lists it.
        caller: Carries its calls.
        effect: The effect that the operator has accepted; None: `once`.
        keys: The keys of the clients that it is listed for, because the server shows it only in their sessions; None: for all.
    """

    wraps_result: ClassVar[bool] = True
    declares_beside: ClassVar[bool] = True
    runner = "inline"
    requires_actor = False
    category = "safe_chain"

    def __init__(
        self,
        server: McpServer,
        definition: Mapping[str, Any],
        caller: CallsTools,
        *,
        effect: Effect | None = None,
        keys: frozenset[str] | None = None,
    ) -> None:
        self.server = server.name
        self.keys = keys
        self.definition = definition
        """The definition as the server sent it, with its unknown fields."""
        self._caller = caller
        self.remote_name = _as_text(definition.get("name"))
        """The name on the server."""
        self.name = prefixed_name(server.name, self.remote_name) if server.prefix else self.remote_name
        self.description = _description(definition, server.name)
        self.parameters = _as_schema(definition.get("inputSchema"))
        output = definition.get("outputSchema")
        self.output_schema = with_readable_integers(output) if isinstance(output, dict) else None
        self.timeout_s = server.timeout_s
        self.effect = effect or "once"
        set_options(self, server.options.get(self.remote_name, {}))

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> object:
        return self._call(context, arguments)

    async def _call(self, context: ToolContext, arguments: dict[str, Any]) -> Execution:
        try:
            caller = Caller(uid=context.uid, on_progress=context.progress, asking_human=context.asking_human, client=calling_client())
            result = await self._caller.call_tool(self.definition, arguments, caller)
            return execution_of_result(self.server, result)
        except RpcError as error:
            return execution_of_error(self.server, error)
        except McpError as error:
            return execution_of_failure(
                error, str(error).removesuffix(f" {LOOK_FIRST}")
            )  # the engine says what is to be done, by the tool's effect

    def where(self) -> str:
        return f"MCP server {self.server}"


def _description(definition: Mapping[str, Any], server: str) -> str:
    """Return the description of a tool; one is made if the server gives none, because a model needs one."""
    said = _as_text(definition.get("description")).strip() or _as_text(definition.get("title")).strip()
    return said or f"The tool {_as_text(definition.get('name'))} of the MCP server {server}."


def _as_schema(given: Any) -> Any:
    """Return the schema of a definition; that of a tool without parameters if there is none. Another value is refused at registration."""
    if given is None or given == []:
        return {"type": "object"}
    return with_readable_integers(given) if isinstance(given, dict) else given


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""
