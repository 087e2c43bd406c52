"""MCP servers as a source of tools.

No SDK of MCP is used: messages are dicts as they were parsed, so that nothing is lost on the way. In reading order:

A server and its sessions
    `server_config` is the configuration of a server; each engine makes a `_supervisor` of it. A server has a session for the engine and, if
        clients need it, `_client_sessions` of single clients: `_session_choice` decides in which one a request runs, and `_client_era` in
        which era; `calling_client` says on whose behalf. `_supervised_session` keeps a session running. `_session` is one session, which
        `_negotiation` begins; it sends requests in `_request_rounds`, and keeps them as `_running_requests`.

What a server offers
    `_tool_list` has its tools, as `mcp_tool`s; `_pages` follows its lists. `_tool_refresh` lists the tools of a session again when that is
        needed, and `_list_freshness` says how long a list holds. `accepted_tools` has what the operator accepted, and `_tool_changes`
        compares it. `server_content` gives the host the resources and prompts.

What a server says and asks
    `_server_messages` takes what it sends of its own, `_server_requests` answers what it asks, and `_question_origins` finds the request
        that a question belongs to. `_change_subscription` is the subscription to changes, and `_resource_subscriptions` has the clients of
        those of a resource. `_server_tasks` follows a task, and `_call_results` reads the result of a call.

The wire
    `_messages` reads and writes JSON-RPC, for the `_revisions` and `_extensions` of MCP. `_connection` is the protocol of connections.
        `_stdio_connection` is one to a child process.

HTTP
    `_http_connection` is the connection to a server on the network, with `_http_session` in the older era; `_http_exchange` sends requests
        with `_http_headers`, `_http_answers` and `_event_stream` read the answers. `_connection_pool` has an `_http1_connection` for each
        request at a time, with `_http1_messages` and `_http1_heads`, made by `_tcp_connect` or through a proxy by `_proxied_connection`.

OAuth
    `oauth` gets access tokens: `_oauth_metadata` says where, `_oauth_addresses` whether to trust that, `_oauth_grants` are the steps, and
        `_oauth_http` sends the requests.

Configuration
    `config_files` reads the files of other clients, with `_json_file` and `_variables`.
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
