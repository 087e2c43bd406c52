"""Define `callgate serve` for cyclopts; `_serve`, `_serve_check` and `_serve_token` do the work."""

from __future__ import annotations

from cyclopts import App

from callgate._gateway_packages import check_gateway_packages
from callgate.cli._command_options import ServeOptions
from callgate.cli._shared_options import AsJson

__all__ = ["serve_app"]

serve_app = App(name="serve", help="Serve the tools of MCP servers, plugins and Python to MCP clients, each call checked and on record.")


@serve_app.default
def serve(*, options: ServeOptions | None = None) -> int:
    """Serve the tools of MCP servers, plugins and Python to MCP clients, each call checked and on record.

    Over standard input and output, for a client that starts this command; or over HTTP. Everything that is not a protocol message goes to
    standard error. Ends when the client closes its end, and on Ctrl-C or SIGTERM, after the running calls were ended. SIGHUP reloads the
    configuration.

    ```
    callgate serve --config gate.toml
    callgate serve --mcp "uvx mcp-server-git" --mcp .mcp.json --rules rules.toml
    callgate serve --config gate.toml --http 127.0.0.1:8765
    ```

    Exit codes: 0 ended by its client, Ctrl-C or a signal · 1 the journal takes nothing more, as after a lost connection to PostgreSQL · 2
    wrong usage, or it could not be started.
    """
    check_gateway_packages("callgate serve")
    from callgate.cli._serve import serve_clients

    return serve_clients(options or ServeOptions())


@serve_app.command(name="check")
def serve_check(*, options: ServeOptions | None = None, json: AsJson = False) -> int:
    """Check the configuration, start its servers once, and show what clients would get; exit code 1 if a server or a tool fails.

    ```
    callgate serve check --config gate.toml
    ```
    """
    check_gateway_packages("callgate serve")
    from callgate.cli._serve_check import check_gateway

    return check_gateway(options or ServeOptions(), as_json=json)


@serve_app.command(name="token")
def serve_token(name: str = "NAME", /, *, json: AsJson = False) -> int:
    """Print a new random token, and the lines for the configuration file by which the gateway knows it. Nothing is stored.

    ```
    callgate serve token alice
    ```

    Parameters
    ----------
    name
        The name of the principal who gets the token.
    """
    check_gateway_packages("callgate serve")
    from callgate.cli._serve_token import make_token

    return make_token(name, as_json=json)
