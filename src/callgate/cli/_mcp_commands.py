"""Define `callgate mcp` for cyclopts; `_mcp_add`, `_mcp_list`, `_mcp_accept` and `_mcp_test` do the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from callgate.cli._shared_options import AsJson, Flag

__all__ = ["mcp_app"]

mcp_app = App(name="mcp", help="Add, list, test and remove MCP servers, and accept their tools.")
Config = Annotated[str, Parameter(help="The configuration file, also one of another client. Default: `.mcp.json` here.")]
Effects = Annotated[
    tuple[str, ...],
    Parameter(
        name="--effect",
        help="Accept an effect for tools: `none=read_file,list_files` (they only read) or `idempotent=put_file`. May be repeated. "
        "All others are `once`.",
        negative="",
    ),
]
Yes = Annotated[bool, Flag]
Named = Annotated[str, Parameter(name="name", help="The server's name, as `callgate mcp list` shows it.")]


@mcp_app.command(name="add")
def mcp_add(
    name: str,
    /,
    *target: str,
    header: Annotated[tuple[str, ...], Flag] = (),
    env: Annotated[tuple[str, ...], Flag] = (),
    effect: Effects = (),
    config: Config = ".mcp.json",
    json: AsJson = False,
) -> int:
    """Start a server once, show its tools, and write it to the configuration file, with its tools as accepted.

    What the server says of its own tools is shown and not believed: without `--effect`, every tool is `once`. At a terminal you are asked
    for the effects. From then on, a tool that is new or has changed does not run until you accept it.

    ```
    callgate mcp add git --effect none=git_status,git_log -- uvx mcp-server-git
    callgate mcp add crm https://crm.example/mcp --header 'Authorization: Bearer ${CRM_TOKEN}'
    callgate mcp add notes --env NOTES_KEY -- node server.js --folder notes
    ```

    Exit codes: 0 added · 1 the server cannot be started, or you said no; nothing is written · 2 wrong usage.

    Parameters
    ----------
    name
        A name of your choice.
    target
        The command after `--`, or the server's address.
    header
        A header of every request, as `Name: value`; `${NAME}` in it is read from the environment at each start. May be repeated.
    env
        A variable of the server's process: `NAME=value`, or `NAME` to pass it on from the environment at each start. May be repeated.
    """
    from callgate.cli._mcp_add import add_mcp_server

    return add_mcp_server(name, target, headers=header, env=env, effects=effect, config=config, as_json=json)


@mcp_app.command(name="list")
def mcp_list(*, start: Annotated[bool, Parameter(negative="--no-start")] = True, config: Config = ".mcp.json", json: AsJson = False) -> int:
    """Start the servers of the configuration file, and list them with their tools, the accepted effects, and what is in quarantine.

    ```
    callgate mcp list
    callgate mcp list --config .vscode/mcp.json --no-start
    ```

    Parameters
    ----------
    start
        Start the servers. With `--no-start`, only the files are read.
    """
    from callgate.cli._mcp_list import list_mcp_servers

    return list_mcp_servers(config, start=start, as_json=json)


@mcp_app.command(name="remove")
def mcp_remove(name: Named, /, *, config: Config = ".mcp.json") -> int:
    """Remove a server from the configuration file, with its accepted tools.

    ```
    callgate mcp remove git
    ```
    """
    from callgate.cli._mcp_add import remove_mcp_server

    return remove_mcp_server(name, config)


@mcp_app.command(name="test")
def mcp_test(
    name: Named,
    /,
    *,
    tool: str = "",
    arguments: Annotated[str, Parameter(allow_leading_hyphen=True)] = "{}",
    timeout: float | None = None,
    config: Config = ".mcp.json",
    json: AsJson = False,
) -> int:
    """Start a server, and show how long it took, its revision of the protocol, its tools, and every problem; exit code 1 if there is one.

    ```
    callgate mcp test git
    callgate mcp test git --tool git_status --arguments '{"repo_path": "."}'
    ```

    Parameters
    ----------
    tool
        Also call this tool. It runs, whatever its effect is, unless it is in quarantine.
    arguments
        The arguments of that call: one JSON object, `@file`, or `-` for standard input. Default: none.
    timeout
        Seconds for that call. Default: `TOOL_EXECUTION_TIMEOUT_MS`, or 300. A tool's own limit takes precedence.
    """
    from callgate.cli._mcp_test import check_mcp_server

    return check_mcp_server(name, tool, arguments, timeout, config, as_json=json)


@mcp_app.command(name="diff")
def mcp_diff(
    name: Annotated[str, Parameter(help="Only this server.")] = "", /, *, config: Config = ".mcp.json", json: AsJson = False
) -> int:
    """Show how the tools of the servers differ from the accepted ones; exit code 1 if they do, or a server cannot be started.

    ```
    callgate mcp diff
    callgate mcp diff git
    ```
    """
    from callgate.cli._mcp_accept import diff_mcp_tools

    return diff_mcp_tools(name, config, as_json=json)


@mcp_app.command(name="accept")
def mcp_accept(
    name: Named,
    /,
    *tools: str,
    effect: Effects = (),
    yes: Yes = False,
    config: Config = ".mcp.json",
    json: AsJson = False,
) -> int:
    """Accept the tools of a server as they are now, after showing what changed. You are asked first; without a terminal, give `--yes`.

    A tool keeps the effect that was accepted for its name; a new one is `once`.

    ```
    callgate mcp accept git
    callgate mcp accept git git_log git_show --effect none=git_log,git_show --yes
    ```

    Exit codes: 0 accepted · 1 the server cannot be started, or you said no · 2 wrong usage, or nobody can be asked and `--yes` is missing.

    Parameters
    ----------
    tools
        Only these tools. Default: all, and tools that the server no longer offers are forgotten.
    yes
        Do not ask. Needed if the input is no terminal, and with `--json`.
    """
    from callgate.cli._mcp_accept import accept_mcp_tools

    return accept_mcp_tools(name, tools, effect, config, yes=yes, as_json=json)
