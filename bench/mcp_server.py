"""An MCP server of the official SDK with one tool, which returns its argument: `python -m bench.mcp_server [PORT]`.

Over stdio, or over HTTP at a port of this machine. Must not import callgate.
"""

from __future__ import annotations

import logging
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("bench")


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    if sys.argv[1:]:
        logging.disable()
        server.run("streamable-http", port=int(sys.argv[1]), json_response=True)
    else:
        server.run("stdio")
