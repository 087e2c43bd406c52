"""An MCP server of the official SDK with one tool, which returns its argument: `python -m bench.mcp_server`. Must not import callgate."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("bench")


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    server.run("stdio")
