"""A server of the official SDK with an app: `python -m tests.gateway.app_server`."""

from __future__ import annotations

from mcp.server.apps import Apps, client_supports_apps
from mcp.server.mcpserver import Context, MCPServer

apps = Apps()


@apps.tool(resource_uri="ui://clock/app.html", description="Return the time, or show it in the app.")
def clock(ctx: Context) -> str:
    return "in the app" if client_supports_apps(ctx) else "12:00"


apps.add_html_resource("ui://clock/app.html", "<p>12:00</p>")

if __name__ == "__main__":
    MCPServer("clock", extensions=[apps], log_level="WARNING").run("stdio")
