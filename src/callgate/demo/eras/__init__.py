"""Demonstration 10: MCP clients and servers of both eras meet through the gateway, and nothing is lost on the way.

`_server.py` is a program: an MCP server that knows one era only. `_client.py` speaks one era to a gateway that is another process.
`_scenario.py` lets each client meet each server, and checks what both have seen.
"""

from __future__ import annotations

from callgate.demo.eras._scenario import eras

__all__ = ["eras"]
