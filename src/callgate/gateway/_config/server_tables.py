"""Read the tables of MCP servers and plugins in the configuration of a gateway.

A server takes every option of `McpServer` that a file can say, under the same name: an option that is added there can be written here.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from msgspec.structs import fields

from callgate._server_processes.shown_command import shown_command, shown_word
from callgate.calls import Category
from callgate.errors import UsageError
from callgate.gateway._config.toml_table import TomlTable
from callgate.mcp import ConfiguredServer, McpServer
from callgate.mcp._revisions import Era
from callgate.mcp.server_config import Isolation
from callgate.plugins import Plugin, plugin
from callgate.tools.tool_declaration import CacheScope

__all__ = ["read_plugins", "read_servers"]

_NOT_IN_A_FILE: Final = frozenset({"name", "accepted", "auth", "elicitation", "sampling", "problem"})
_SERVER_KEYS: Final = (*(one.name for one in fields(McpServer) if one.name not in _NOT_IN_A_FILE), "args", "enabled")
_READ: Final = frozenset({"command", "args", "env", "cwd", "url", "headers", "tools", "enabled", "roots"})
"""Keys that are read in their own way."""
_NO_LIMIT: Final = "Leave it out for no limit of its own."
_PLUGIN_KEYS: Final = tuple(one.name for one in fields(Plugin) if one.name != "name")


def read_servers(root: TomlTable, accepted: Path | None) -> Iterator[ConfiguredServer]:
    """Yield the servers of the tables `[servers.NAME]`.

    Args:
        accepted: The file of accepted tools. None: there is none.

    Raises:
        UsageError: A key or a value is wrong.
    """
    for name, table in root.tables("servers").items():
        yield _server(name, table, accepted)


def _server(name: str, table: TomlTable, accepted: Path | None) -> ConfiguredServer:
    table.refuse_unknown(_SERVER_KEYS)
    if ("command" in table) == ("url" in table):
        fact = "and url are both given" if "url" in table else "is missing, and so is url"
        raise table.wrong("command", fact, "Write one of the two: the command that starts the server, or its address.")
    given: dict[str, Any] = {key: _server_option(table, key) for key in table.entries if key not in _READ}
    given |= _network(table) if "url" in table else _process(table)
    if "options" in table:
        given["options"] = {tool: _tool_options(options) for tool, options in table.tables("options").items()}
    given["tools"] = table.texts("tools") if "tools" in table else None
    given["roots"] = tuple(one if one.startswith("file:") else table.file.path(one) for one in table.texts("roots"))
    try:
        server = McpServer(name=name, accepted=accepted, **given)
    except UsageError as error:
        raise UsageError(f"{table.file.name}: {table.header} cannot be used: {error}") from None
    return ConfiguredServer(
        name=name,
        server=server,
        enabled=table.flag("enabled", True),
        target=shown_word(table.text("url")) if "url" in table else shown_command(_words(table, variables=False)),
        variables=tuple(server.headers if "url" in table else server.env),
    )


def _server_option(table: TomlTable, key: str) -> object:
    """Return the value of an option. `McpServer` checks those without a case; its errors must not name what cannot be in a file."""
    match key:
        case "timeout_s" | "start_timeout_s" | "session_idle_s":
            return table.seconds(key)
        case "prefix" | "required" | "client_tools":
            return table.flag(key, default=True)
        case "parallel":
            return table.count(key, 1, advice=_NO_LIMIT)
        case "era":
            return table.choice(key, get_args(Era), advice="Leave it out, and each client's requests are sent in the era that fits.")
        case "isolation":
            return table.choice(key, get_args(Isolation), advice="Leave it out, and clients share what they may share.")
        case _:
            return table.entries[key]


def _tool_options(table: TomlTable) -> dict[str, Any]:
    """Return the options of a tool. Unknown ones are returned as they are: `McpServer` refuses them."""
    return {key: _tool_option(table, key) for key in table.entries}


def _tool_option(table: TomlTable, key: str) -> object:
    match key:
        case "timeout_s" | "attempt_timeout_s" | "cache_ttl":
            return table.seconds(key)
        case "requires_approval" | "requires_actor" | "retryable" | "cacheable" | "coerce":
            return table.flag(key, default=True)
        case "key":
            return table.text(key)
        case "reads" | "writes" | "aliases" | "triggers":
            return table.texts(key)
        case "category":
            return table.choice(key, get_args(Category))
        case "cache_scope":
            return table.choice(key, get_args(CacheScope))
        case "parallel":
            return table.count(key, 1, advice=_NO_LIMIT)
        case "retry":
            raise table.wrong(key, "cannot be written in a file", "Remove it; retryable = false turns retries off.")
        case _:
            return table.entries[key]


def _network(table: TomlTable) -> dict[str, Any]:
    for key in ("args", "env", "cwd"):
        if key in table:
            raise table.wrong(key, "is for a command; a server with a url has none", "Remove it. Secrets for a url belong into headers.")
    return {"url": table.text("url", variables=True), "headers": table.pairs("headers")}


def _process(table: TomlTable) -> dict[str, Any]:
    if "headers" in table:
        raise table.wrong("headers", "is for a url; a command has none", "Remove it. Secrets for a command belong into env.")
    cwd = table.file.path(table.text("cwd", ".", variables=True))
    return {"command": _words(table, variables=True), "env": table.pairs("env"), "cwd": str(cwd)}


def _words(table: TomlTable, *, variables: bool) -> tuple[str, ...]:
    """Return the command and its arguments. A command as text is divided as by a shell."""
    if isinstance(table.entries["command"], str):
        try:
            words = tuple(shlex.split(table.text("command")))
        except ValueError as error:
            raise table.wrong("command", f"cannot be divided into words ({error})", 'Write a list: ["uvx", "mcp-server-git"].') from None
    else:
        words = table.texts("command")
    words += table.texts("args")
    if not words or not words[0]:
        raise table.wrong("command", "is empty", "Write the program to start.")
    if any("${" in word and "}" not in word.partition("${")[2] for word in words):
        raise table.wrong("command", "has a variable with a blank in its default", 'Write a list of words: ["uvx", "${NAME:-a b}"].')
    return tuple(table.file.replace_variables(word, table.place("command")) for word in words) if variables else words


def read_plugins(root: TomlTable) -> Iterator[Plugin]:
    """Yield the plugins: of a list of folders or names, or of tables `[plugins.NAME]` with options.

    Raises:
        UsageError: A key or a value is wrong, or there is no such plugin.
    """
    if not isinstance(root.entries.get("plugins", {}), dict):
        for target in root.texts("plugins"):
            yield _plugin(root, "plugins", target, {})
        return
    for name, table in root.tables("plugins").items():
        table.refuse_unknown(_PLUGIN_KEYS)
        options = {key: value for key, value in table.entries.items() if key not in ("path", "env")}
        yield _plugin(table, "path", table.text("path", name, variables=True), options | {"name": name, "env": table.pairs("env")})


def _plugin(table: TomlTable, key: str, target: str, options: dict[str, Any]) -> Plugin:
    folder = table.file.path(target)
    is_folder = os.sep in target or target.startswith((".", "~")) or folder.is_dir()
    try:
        return plugin(folder if is_folder else target, **options)
    except UsageError as error:
        raise UsageError(f"{table.file.name}: {table.place(key)} cannot be used: {error}") from None
