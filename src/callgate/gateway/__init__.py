"""The MCP gateway: offers the tools of an engine to MCP clients, with the engine's whole route in between. In reading order:

The gateway
    `gateway` has `Gateway`: an engine, and a front for each client. `principals` has on whose behalf calls are made.

The protocol
    `_fronts` answers the messages of one client in one era of the protocol. `_requests` has the requests that run, or that wait for their
        clients. `_tool_calls` makes the calls. `_tasks` has calls that go on as tasks. `_server_features` has what the gateway offers:
        tools, resources, prompts, and notifications of their changes. `_client_calls` is one client, and what the upstream servers know
        of it during a call. `_redaction` removes secrets from what clients get of a server.

The transports
    `_stdio` and `_http` carry messages to a front and back. `_exchange` has the protocols between fronts and transports.
        `_client_messages` reads the messages of clients, which are untrusted. `_http_limits` has the bounds of HTTP,
        and `_gateway_limits` those of calls, questions and tasks.

The access
    `tokens` and `jwt_tokens` find the principal of a token. `_access` has the rest: keys, scopes, expiry, and what is allowed while the
        configuration is reloaded.

The configuration
    `config` has its values, and `config_file` reads them from a file with the parts in `_config`.

The operator
    `_observability` has metrics, traces and health.

Messages are dicts as they were parsed, so that what an upstream server sends reaches the client unchanged.
"""

from __future__ import annotations

from callgate.gateway._gateway_limits import GatewayLimits
from callgate.gateway._stdio import serve_stdio
from callgate.gateway.gateway import Gateway
from callgate.gateway.principals import LOCAL, Principal

__all__ = ["LOCAL", "Gateway", "GatewayLimits", "Principal", "serve_stdio"]
