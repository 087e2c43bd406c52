"""Find the MCP servers that `--mcp` names, and the plugins that `--plugin` names. Starts none."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from callgate._server_processes.shown_command import shown_command, shown_word
from callgate._terminal_text import one_line
from callgate._unusable_paths import expanded
from callgate.cli._call_arguments import refuse_odd_text
from callgate.errors import UsageError
from callgate.mcp import McpServer, configured_servers, mcp, read_mcp_servers
from callgate.mcp.config_files import accepted_file
from callgate.plugins import Plugin, plugin

__all__ = ["files_of_servers", "plugins_of", "servers_of", "shown_server", "test_commands"]

_HERE: Final = ".mcp.json"
_INTERPRETERS: Final = {".py": "python", ".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node"}
"""The interpreters of programs that may be mistaken for configuration files, by file name extension."""


def servers_of(words: Sequence[str]) -> list[McpServer]:
    """Return the MCP servers of `--mcp`: those of a configuration file, one of `.mcp.json` here by name, or one by address or command.

    Raises:
        UsageError: A value cannot be used, or two servers have one name.
    """
    found = list[McpServer]()
    for word in words:
        refuse_odd_text(mcp=word)
        if not word.strip():
            raise UsageError("--mcp is empty. Give a configuration file such as .mcp.json, an address, or a command.")
        found += read_mcp_servers(word) if _is_file(word) else [_find_in_config(word) or _server(word)]
    return [_check_unique(server, found[:index]) for index, server in enumerate(found)]


def files_of_servers(words: Sequence[str]) -> list[Path]:
    """Return the configuration files in which `--mcp` finds servers, and the files of their accepted tools."""
    files = [word if _is_file(word) else _HERE for word in words if _is_file(word) or _find_in_config(word)]
    return [path for file in files for path in (expanded(file), accepted_file(file))]


def plugins_of(words: Sequence[str]) -> list[Plugin]:
    """Return the plugins of `--plugin`.

    Raises:
        UsageError: A value is not a plugin, or two plugins have one name.
    """
    found = list[Plugin]()
    for word in words:
        refuse_odd_text(plugin=word)
        one = plugin(word)
        if one.name in (other.name for other in found):
            raise UsageError(f"Two plugins of --plugin are named '{one.name}'. Change the name in the manifest of one.")
        found.append(one)
    return found


def _is_file(word: str) -> bool:
    """Return whether a value of `--mcp` is a configuration file. A file that can be executed is the command of a server.

    Raises:
        UsageError: It is a script without the right to be executed.
    """
    if word.endswith((".json", ".jsonc")):
        return (" " not in word and "://" not in word) or os.path.isfile(word)
    if not os.path.isfile(word) or os.access(word, os.X_OK):
        return False
    interpreter = _INTERPRETERS.get(os.path.splitext(word)[1])
    if interpreter is not None:
        command = shlex.join((interpreter, word))
        raise UsageError(
            f"--mcp {one_line(word)} is a program, not a configuration file. Give its whole command: --mcp {shlex.quote(command)}."
        )
    return True


def _find_in_config(word: str) -> McpServer | None:
    """Return the server with this name in the configuration file of this folder; None if there is no such file or server."""
    if not re.fullmatch(r"[\w.-]+", word) or not os.path.isfile(_HERE):
        return None
    return next((one.server for one in configured_servers(_HERE) if word in (one.name, one.server.name)), None)


def _server(word: str) -> McpServer:
    try:
        shlex.split(word)
    except ValueError as error:
        raise UsageError(f"--mcp {word[:80]}: the command cannot be read: {error}. Close every quotation mark.") from error
    return mcp(word)


def shown_server(word: str) -> str:
    """Return a value of `--mcp` without the credentials in it, so that it can be shown and recorded by a shell."""
    if _is_file(word) or "://" in word.split(maxsplit=1)[0]:
        return shown_word(word)
    words = shlex.split(word)
    shown = shown_command(words)
    return word if shown == shlex.join(words) else shown


def test_commands(mcp_words: Sequence[str], plugin_words: Sequence[str]) -> dict[str, str]:
    """Return the command that starts a server alone and shows why it fails, by the name of the server.

    A server that `--mcp` gives as an address or a command has none.
    """
    found = {plugin(word).name: shlex.join(("callgate", "plugin", "check", word)) for word in plugin_words}
    for word in mcp_words:
        file = word if _is_file(word) else _HERE if _find_in_config(word) else ""
        option = ("--config", file) if file != _HERE else ()
        for one in configured_servers(file) if file else ():
            found[one.server.name] = shlex.join(("callgate", "mcp", "test", one.name, *option))
    return found


def _check_unique(server: McpServer, others: Sequence[McpServer]) -> McpServer:
    """Return the server; raise if another one has its name."""
    if server.name in (other.name for other in others):
        raise UsageError(
            f"Two servers of --mcp are named '{server.name}'. Write them to one file with names of their own: callgate mcp add."
        )
    return server
