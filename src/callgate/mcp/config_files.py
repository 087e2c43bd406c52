"""Read MCP servers from the configuration files of other clients, as they are, and add or remove one.

Known are the files of Claude Desktop and Claude Code (`.mcp.json`), Cursor, VS Code, Windsurf, Zed, Gemini CLI, Cline,
Copilot CLI and opencode. What callgate does not use in an entry is noted, never refused. A value of a wrong type is
refused with its place. A variable without a value keeps only its own server from starting. Values of `env` and
`headers` are in no message, because they may be secrets. Starts nothing.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from callgate._option_checks import NamedStruct
from callgate._server_processes.shown_command import shown_command, shown_word
from callgate._terminal_text import one_line
from callgate._unusable_paths import check_path, displayed, expanded
from callgate.errors import UsageError
from callgate.mcp._json_file import JsonObject, has_comments, parse_json, read_json_text, repeated_key, rewrite_json
from callgate.mcp._revisions import Era
from callgate.mcp._variables import Variables, read_env_file
from callgate.mcp.accepted_tools import AcceptedTools
from callgate.mcp.server_config import Isolation, McpServer

__all__ = [
    "ConfiguredServer",
    "accepted_file",
    "add_server",
    "check_addition",
    "configured_server",
    "configured_servers",
    "read_mcp_servers",
    "remove_server",
]

_log = logging.getLogger("callgate.mcp")
_USE: Final = "a configuration of MCP servers"
_SECTIONS: Final = (("mcpServers",), ("servers",), ("context_servers",), ("mcp", "servers"), ("mcp.servers",), ("mcp",))
_MOST_SERVERS: Final = 1_000
_UNKNOWN = "http://unknown.invalid/"
"""The placeholder for an address that is not known."""
_LOCAL = ("unix:", "pipe:")
_URL_KEYS: Final = ("httpUrl", "serverUrl", "url")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
_STDIO: Final = frozenset({"stdio", "local"})
_HTTP: Final = frozenset({"http", "https", "remote", "streamablehttp"})
_KNOWN: Final = frozenset(
    {"args", "command", "cwd", "description", "disabled", "enabled", "env", "envFile", "environment", "era"}
    | {"headers", "includeTools", "isolation", "name", "source", "tools", "transport", "type", *_URL_KEYS}
)
_CHOICES: Final = {"era": get_args(Era), "isolation": get_args(Isolation)}
_APPROVALS: Final = frozenset({"alwaysAllow", "autoApprove", "trust"})
_LEFT_OUT: Final = frozenset({"disabledTools", "excludeTools"})


class ConfiguredServer(NamedStruct, frozen=True, kw_only=True):
    """One entry of a configuration file."""

    name: str
    """The name in the file. `server.name` is the same if it can be the name of a server."""
    server: McpServer
    enabled: bool = True
    target: str = ""
    """The command or the address as in the file, for a person: variables are not replaced, and credentials are left out."""
    variables: tuple[str, ...] = ()
    """The names of the environment variables or headers that the server is given."""
    notes: tuple[str, ...] = ()
    """The parts of the entry that callgate does not use, as sentences."""


def read_mcp_servers(
    path: str | os.PathLike[str], *, accepted: str | os.PathLike[str] | AcceptedTools | None = None
) -> tuple[McpServer, ...]:
    """Return the servers of a client's configuration file, without those that it disables.

    What callgate does not use of the file is logged as a warning of the logger `callgate.mcp`.

    Args:
        path: The file, such as `.mcp.json`.
        accepted: The accepted tools of all servers. Default: the file beside it (`.mcp.accepted.json`) if it exists.

    Raises:
        UsageError: The file cannot be read, or a value in it has the wrong type; the message names file, server and key.
    """
    found = configured_servers(path, accepted=accepted)
    for one in found:
        for note in one.notes if one.enabled else ():
            _log.warning("%s: the MCP server '%s': %s", displayed(path), one_line(one.name), note)
    return tuple(one.server for one in found if one.enabled)


def configured_servers(
    path: str | os.PathLike[str], *, accepted: str | os.PathLike[str] | AcceptedTools | None = None
) -> tuple[ConfiguredServer, ...]:
    """Return all entries of a configuration file; see `read_mcp_servers`."""
    check_path("read_mcp_servers", path, in_memory="Give a file.", on_server="Give a file.")
    file = expanded(path)
    text = read_json_text(file, _USE)
    if text is None:
        raise UsageError(
            f"There is no file {displayed(file)}, so it cannot be used as {_USE}. Give another, or make it with `callgate mcp add`."
        )
    if accepted is None and accepted_file(file).exists():
        accepted = accepted_file(file)
    section = _section(parse_json(text, file, _USE), file)
    if len(section) > _MOST_SERVERS:
        raise UsageError(f"{displayed(file)} has {len(section):,} MCP servers; at most {_MOST_SERVERS:,} are read. Divide the file.")
    names = _usable_names(section)
    return tuple(_EntryReader(file, name, entry).read(names[name], accepted) for name, entry in section.items())


def configured_server(path: str | os.PathLike[str], name: str, entry: Mapping[str, Any]) -> ConfiguredServer:
    """Return the server that an entry of a file would be.

    Raises:
        UsageError: The entry is wrong, or `name` cannot be the name of a server.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"An MCP server cannot be named '{one_line(name, 80)}'. Take at most 64 letters, digits, '_', '-' and '.', and begin with a"
            " letter, digit or '_'."
        )
    return _EntryReader(Path(path), name, parse_json(json.dumps(entry), Path(path), _USE)).read(name, None)


def accepted_file(path: str | os.PathLike[str]) -> Path:
    """Return the file of accepted tools that belongs to a configuration file: `.mcp.accepted.json` beside `.mcp.json`."""
    file = expanded(path)
    return file.with_name(f"{file.name.removesuffix('.json').removesuffix('.toml')}.accepted.json")


def config_beside(accepted: Path) -> Path | None:
    """Return the configuration file that a file of accepted tools belongs to by its name; None if there is none, or more than one."""
    stem = accepted.name.removesuffix(".accepted.json")
    found = [one for one in (accepted.with_name(f"{stem}.toml"), accepted.with_name(f"{stem}.json")) if one != accepted and one.exists()]
    return found[0] if len(found) == 1 else None


def add_server(path: str | os.PathLike[str], name: str, entry: Mapping[str, Any]) -> None:
    """Add an entry to a configuration file, and make the file if there is none. Everything else in it stays.

    A new file with variables or headers can be read by its owner only, because these may be secrets.

    Raises:
        UsageError: The name is taken, the file has comments, which would be lost, or it cannot be written.
    """
    file = expanded(path)
    rewrite_json(file, _USE, lambda text: _add_entry(file, text, name, entry), private=bool(entry.get("env") or entry.get("headers")))


def check_addition(path: str | os.PathLike[str], name: str, entry: Mapping[str, Any]) -> None:
    """Raise what `add_server` would raise, as far as that can be known without writing."""
    file = expanded(path)
    _add_entry(file, read_json_text(file, _USE), name, entry)


def remove_server(path: str | os.PathLike[str], name: str) -> None:
    """Remove an entry from a configuration file. Everything else in it stays.

    Raises:
        UsageError: There is no such entry, the file has comments, which would be lost, or it cannot be written.
    """
    file = expanded(path)

    def remove(text: str | None) -> dict[str, Any]:
        root = _parse_for_writing(file, text, "Remove the entry by hand.")
        section = _section(root, file)
        if name not in section:
            raise UsageError(f"{displayed(file)} has no MCP server '{one_line(name)}'. It has: {_join_names(section)}.")
        del section[name]
        return root

    rewrite_json(file, _USE, remove)


def _add_entry(file: Path, text: str | None, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    root = _parse_for_writing(file, text, f"Add this by hand: {json.dumps({name: dict(entry)})}")
    section = _section(root, file) if _has_section(root) else root.setdefault("mcpServers", JsonObject())
    taken = name if name in section else next((one for one, usable in _usable_names(section).items() if usable == name), "")
    if taken:
        raise UsageError(
            f"{displayed(file)} has an MCP server '{one_line(taken)}' already. Take another name, or remove that one first:"
            f" callgate mcp remove {shlex.quote(one_line(taken))} --config {shlex.quote(str(file))}"
        )
    section[name] = dict(entry)
    return root


def _parse_for_writing(file: Path, text: str | None, by_hand: str) -> JsonObject:
    """Return the object of a file's text, if the file can be rewritten without losing anything."""
    if text is None or not text.strip():
        return JsonObject()
    root = parse_json(text, file, _USE)
    if has_comments(text):
        raise UsageError(f"{displayed(file)} has comments, which would be lost if callgate wrote it. {by_hand}")
    if repeated := repeated_key(root):
        raise UsageError(
            f"{displayed(file)} has '{one_line(repeated, 80)}' more than once in one object. All but the last would be lost if callgate"
            " wrote the file. Delete what is not wanted."
        )
    return root


def _join_names(names: Mapping[str, object]) -> str:
    return ", ".join(one_line(name, 80) for name in names) or "none"


def _value_at(root: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    value: Any = root
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _has_section(root: Mapping[str, Any]) -> bool:
    return any(_value_at(root, keys) is not None for keys in _SECTIONS)


def _section(root: JsonObject, path: Path) -> JsonObject:
    """Return the object that has the servers by name."""
    for keys in _SECTIONS:
        found = _value_at(root, keys)
        if found is None:
            continue
        where = f"{displayed(path)}: {'.'.join(keys)}"
        if keys[0] in root.repeated:
            raise UsageError(f"{displayed(path)} has '{keys[0]}' more than once. Put the servers of all of them into one.")
        if not isinstance(found, JsonObject):
            raise UsageError(f"{where} is not an object. It must have an object for each server: {_EXAMPLE}")
        if found.repeated:
            raise UsageError(f"{where} has '{one_line(found.repeated[0])}' more than once. Rename one of the two, or delete it.")
        return found
    there = f"It has {_join_names(root)}." if root else "It is empty."
    raise UsageError(
        f"{displayed(path)} has no MCP servers: there is no 'mcpServers', 'servers' or 'context_servers' in it. {there} Write {_EXAMPLE}"
    )


_EXAMPLE: Final = '{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}'


class _EntryReader:
    """Reads one entry; its errors name the file, the server and the key."""

    def __init__(self, file: Path, name: str, entry: object) -> None:
        self._where = f"{displayed(file)}: the MCP server '{one_line(name)}'"
        if not isinstance(entry, JsonObject):
            raise UsageError(f"{self._where} is not an object. Write {_EXAMPLE}")
        if entry.repeated:
            raise UsageError(f"{self._where} has '{one_line(entry.repeated[0])}' more than once. Keep one.")
        self._name = name
        self._entry: dict[str, Any] = _with_flat_command(entry)
        folder = file.absolute().parent
        self._variables = Variables(folder.parent if folder.name.startswith(".") else folder)

    def read(self, own_name: str, accepted: str | os.PathLike[str] | AcceptedTools | None) -> ConfiguredServer:
        enabled = not self._flag("disabled", False) and self._flag("enabled", True)
        url_key = next((key for key in _URL_KEYS if key in self._entry), "")
        kind = re.sub(r"[-_]", "", self._text("type") or self._text("transport")).lower()
        if url_key and "command" in self._entry:
            raise self._invalid_value("command", f"and {url_key} are both given", "Keep one of the two.")
        if not url_key and "command" not in self._entry and self._text("source") != "extension":
            raise self._invalid_value("command", "is missing, and so is url", "Give a program to start, or the address of a server.")
        options = self._target(url_key, kind, enabled=enabled)
        options |= {"tools": self._enabled_tools(), "accepted": accepted, "problem": self._problem()}
        options |= {key: self._choice(key, *words) for key, words in _CHOICES.items()}
        try:
            server = McpServer(name=own_name, **options)
        except UsageError as error:
            raise UsageError(f"{self._where} cannot be used: {error}") from None
        return ConfiguredServer(
            name=self._name,
            server=server,
            enabled=enabled,
            target=shown_word(self._text(url_key)) if url_key else shown_command(self._texts_of_command()),
            variables=tuple(server.headers if url_key else server.env),
            notes=tuple(self._notes(own_name)),
        )

    def _target(self, url_key: str, kind: str, *, enabled: bool) -> dict[str, Any]:
        """Return what starts the server. What is wrong with one that is not used keeps only itself from starting."""
        try:
            if not url_key and "command" not in self._entry:
                raise self._invalid_value("source", "is extension, which only Zed can start", "Give its command, or its url.")
            return self._network(url_key, kind) if url_key else self._process(kind)
        except UsageError as error:
            if enabled and self._text("source") != "extension":
                raise
            self._variables.problems.append(str(error).removeprefix(f"{self._where}: "))
            return {"url": _UNKNOWN, "headers": {}}

    def _problem(self) -> str:
        return " ".join(f"{self._where}: {problem}" for problem in dict.fromkeys(self._variables.problems))

    def _texts_of_command(self) -> tuple[str, ...]:
        given = self._entry.get("command")
        command = self._texts("command") if isinstance(given, list) else (self._text("command"),)
        return (*command, *self._texts("args"))

    def _words(self) -> tuple[str, ...]:
        command = self._texts_of_command()
        if not command or not command[0].strip():
            raise self._invalid_value("command", "is empty", "Give the program to start.")
        return command

    def _process(self, kind: str) -> dict[str, Any]:
        if kind and kind not in _STDIO:
            raise self._invalid_value("type", f"is {one_line(kind, 40)}, which needs a url", "Give the url, or leave out type.")
        words = tuple(self._variables.replace(word, "args" if index else "command") for index, word in enumerate(self._words()))
        cwd = self._variables.replace(self._text("cwd"), "cwd")
        env = self._env_file() | self._pairs("environment") | self._pairs("env")
        return {"command": words, "env": env, "cwd": os.path.expanduser(cwd)}

    def _network(self, key: str, kind: str) -> dict[str, Any]:
        if kind in _STDIO:
            raise self._invalid_value("type", f"is {kind}, which needs a command", "Give the command, or leave out type.")
        if kind and kind not in _HTTP:
            known = "sse is a transport that callgate does not have; many of its servers offer 'http' at an address of its own"
            self._variables.problems.append(f"type: {known if kind == 'sse' else one_line(kind, 40)}. Use 'http' with the address for it.")
        url = self._variables.replace(self._text(key), key)
        if url.startswith(_LOCAL):
            self._variables.problems.append(f"{key} is the address of a local socket, which callgate cannot use. Give an http address.")
        if not self._variables.problems and not _is_address(url):
            raise self._invalid_value(key, "is not the address of a server", "Write an address such as https://host/mcp.")
        return {"url": url if _is_address(url) else _UNKNOWN, "headers": self._pairs("headers")}

    def _env_file(self) -> dict[str, str]:
        given = self._variables.replace(self._text("envFile"), "envFile")
        if not given:
            return {}
        try:
            return read_env_file(expanded(given))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            self._variables.problems.append(f"envFile: {displayed(given)} cannot be read: {reason}. Make the file, or leave out envFile.")
            return {}

    def _pairs(self, key: str) -> dict[str, str]:
        """Return the texts of an object by name. Numbers and truth values count as text, as in other clients."""
        given = self._entry.get(key) or {}
        if not isinstance(given, dict):
            raise self._invalid_value(key, "is not an object", 'Write names with texts: {"NAME": "value"}.')
        found = {}
        for name, value in given.items():
            if isinstance(value, (int, float)):
                value = json.dumps(value)
            if value is not None and not isinstance(value, str):
                raise self._invalid_value(f"{key}.{one_line(name, 80)}", "is not text", "Its value is not shown. Write it in quotes.")
            if value is not None:
                found[name] = self._variables.replace(value, f"{key}.{one_line(name, 80)}")
        return found

    def _enabled_tools(self) -> tuple[str, ...] | None:
        """Return the names of the only tools to use, None for all. If both keys are given, both restrict."""
        chosen: tuple[str, ...] | None = None
        for key in ("includeTools", "tools"):
            names = self._texts(key)
            if self._entry.get(key) is not None and "*" not in names:
                chosen = names if chosen is None else tuple(name for name in chosen if name in names)
        return chosen

    def _choice(self, key: str, *words: str) -> str | None:
        given = self._text(key)
        if given not in ("", *words):
            raise self._invalid_value(key, f"is {one_line(given, 40)}", f"Write {' or '.join(words)}, or leave it out.")
        return given or None

    def _text(self, key: str) -> str:
        value = self._entry.get(key)
        if value is not None and not isinstance(value, str):
            raise self._invalid_value(key, "is not text", "Write it in quotes.")
        return value or ""

    def _texts(self, key: str) -> tuple[str, ...]:
        value = self._entry.get(key)
        value = [] if value is None else value
        if not isinstance(value, list):
            raise self._invalid_value(key, "is not a list", 'Write a list of texts: ["--verbose", "file.txt"].')
        for index, word in enumerate(value):
            if not isinstance(word, str):
                raise self._invalid_value(f"{key}[{index}]", "is not text", "Write it in quotes.")
        return tuple(value)

    def _flag(self, key: str, default: bool) -> bool:
        value = self._entry.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._invalid_value(key, "is neither true nor false", "Write true or false.")
        return default if value is None else value

    def _notes(self, own_name: str) -> Iterator[str]:
        if own_name != self._name:
            yield f"It is called '{own_name}' here: names have at most 64 letters, digits, '_', '-' and '.'."
        for key in self._entry:
            if key in _APPROVALS:
                yield f"'{key}' is not used: which calls need no question is decided by rules and by the accepted effects."
            elif key in _LEFT_OUT and self._entry[key]:
                yield f"'{key}' is not used. Deny these tools with a rule."
            elif key == "timeout":
                yield "'timeout' is not used, because clients count it in different units."
            elif key not in _KNOWN:
                yield f"'{one_line(key, 80)}' is not used."

    def _invalid_value(self, key: str, fact: str, then: str) -> UsageError:
        return UsageError(f"{self._where}: {key} {fact}. {then}")


def _with_flat_command(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of Zed's older form, whose `command` is an object with `path`, `args` and `env`, in the usual form."""
    command = entry.get("command")
    if not isinstance(command, Mapping):
        return dict(entry)
    return {**entry, "command": command.get("path"), **{key: command[key] for key in ("args", "env") if key in command}}


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _usable_names(section: Mapping[str, object]) -> dict[str, str]:
    """Return for each name of the file a name that a server can have, all different. A usable name stays."""
    usable = {name: name for name in section if _NAME.fullmatch(name)}
    for name in section:
        bare = re.sub(r"[^A-Za-z0-9_.\-]+", "-", name).strip("-.")[:60] or "server"
        free = (bare, *(f"{bare}-{number}" for number in range(2, _MOST_SERVERS + 2)))
        usable.setdefault(name, next(one for one in free if one not in usable.values()))
    return usable
