"""FastMCP's proxy over stdio in front of one MCP server: `python -m bench.fastmcp_gateway COMMAND...`. Must not import callgate."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(command: Sequence[str]) -> None:
    from fastmcp.server import create_proxy  # type: ignore[import-not-found,unused-ignore]

    server = {"command": command[0], "args": list(command[1:]), "transport": "stdio"}
    create_proxy({"mcpServers": {"bench": server}}).run(transport="stdio", show_banner=False)


if __name__ == "__main__":
    main(sys.argv[1:])
