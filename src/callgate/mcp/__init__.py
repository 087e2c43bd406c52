"""MCP servers as a source of tools.

`server_config.py` has the configuration of a server, from which each engine makes its own supervised server. A server has a session for the
engine and, if clients need it, sessions of single clients; each has a connection of its own. `_supervisor.py` keeps a server running,
`_session_choice.py` decides in which session a request runs, and `_negotiation.py` begins it. `_connection.py` is the protocol of
connections; `_stdio_connection.py` and `_http_connection.py` implement it. `calling_client.py` says on whose behalf calls are made.
`server_content.py` gives the host the resources and prompts of a server. `accepted_tools.py` has the tools that the operator accepted,
`config_files.py` reads the configuration files of other clients, and `oauth.py` gets access tokens for servers on the network.

No SDK of MCP is used: messages are dicts as they were parsed, so that nothing is lost on the way.
"""

from __future__ import annotations

from callgate.mcp._connection import ConnectionLost, McpError, NotSent, ProtocolError
from callgate.mcp._messages import RpcError
from callgate.mcp._tool_changes import AcceptedTool, Definition, FieldChange, ToolChange, ToolComparison
from callgate.mcp.accepted_tools import AcceptedTools
from callgate.mcp.calling_client import CallingClient, calling_client, on_behalf_of
from callgate.mcp.config_files import ConfiguredServer, configured_servers, read_mcp_servers
from callgate.mcp.oauth import OAuth
from callgate.mcp.server_config import ChecksDefinitions, ChecksInstructions, McpServer, mcp
from callgate.mcp.server_content import RequestRejected, ServerContent

__all__ = [
    "AcceptedTool",
    "AcceptedTools",
    "CallingClient",
    "ChecksDefinitions",
    "ChecksInstructions",
    "ConfiguredServer",
    "ConnectionLost",
    "Definition",
    "FieldChange",
    "McpError",
    "McpServer",
    "NotSent",
    "OAuth",
    "ProtocolError",
    "RequestRejected",
    "RpcError",
    "ServerContent",
    "ToolChange",
    "ToolComparison",
    "calling_client",
    "configured_servers",
    "mcp",
    "on_behalf_of",
    "read_mcp_servers",
]
