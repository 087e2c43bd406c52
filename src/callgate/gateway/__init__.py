"""The MCP gateway: offers the tools of an engine to MCP clients, with the engine's whole route in between.

Read `gateway.py` first: `Gateway` has an engine, and makes a front for each client. A front answers the messages of one client in one era
of the protocol: `_handshake.py` up to revision 2025-11-25, `_stateless.py` since 2026-07-28. Both use `_methods.py`, which knows no era.
`_tool_calls.py` makes the calls, and `_client_calls.py` is what the upstream servers know of the client. Transports carry messages to a
front and back: `_stdio.py` and `_http`. `_exchange.py` has the protocols between fronts and transports.

Messages are dicts as they were parsed, so that what an upstream server sends reaches the client unchanged.
"""

from __future__ import annotations

from callgate.gateway._stdio import serve_stdio
from callgate.gateway.gateway import Gateway, GatewayLimits
from callgate.gateway.principals import LOCAL, Principal

__all__ = ["LOCAL", "Gateway", "GatewayLimits", "Principal", "serve_stdio"]
