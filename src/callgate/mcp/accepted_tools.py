"""The tools of MCP servers that an operator accepted, in a file or in memory: their definitions and effects, and the instructions of their
servers for models.

A server can change its tools at any time, even after they were reviewed. A tool whose definition is not the
accepted one is kept in quarantine until it is accepted, and so are instructions. Without a file, the first definition that is seen of a
tool counts as accepted for the life of this object. Knows nothing of connections or engines.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, cast, get_args

from msgspec import Struct, structs

from callgate._option_checks import check
from callgate._terminal_text import one_line
from callgate._unusable_paths import check_path, displayed, expanded
from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.mcp._json_file import JsonObject, parse_json, read_json_text, rewrite_json
from callgate.mcp._tool_changes import AcceptedTool, Definition, ToolComparison, compare_instructions, compare_tools, definition_hash

__all__ = ["AcceptedTools"]

_log = logging.getLogger("callgate.mcp")
_VERSION: Final = 1
_EFFECTS: Final = get_args(Effect)
_USE: Final = "a file of accepted MCP tools"
Tools: TypeAlias = dict[str, AcceptedTool]


class _AcceptedServer(Struct):
    """The accepted tools and instructions of one server."""

    tools: Tools
    instructions: str = ""


class AcceptedTools:
    """The tools of MCP servers that an operator accepted.

    Args:
        path: The JSON file, made by the first `accept`. Default: nothing is kept beyond this object.

    Raises:
        UsageError: `path` is not a path.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is not None:
            check_path("AcceptedTools", path, in_memory="Leave it out to keep nothing.", on_server="Give the path of a file.")
        self.path: Final = None if path is None else expanded(path)
        self._seen: dict[str, _AcceptedServer] = {}

    def tools(self, server: str) -> Mapping[str, AcceptedTool]:
        """Return the accepted tools of a server by name.

        Raises:
            UsageError: The file cannot be used; the message names the place in it.
        """
        return self._server(server).tools

    def instructions(self, server: str) -> str:
        """Return the accepted instructions of a server for models; empty if there are none.

        Raises:
            UsageError: The file cannot be used; the message names the place in it.
        """
        return self._server(server).instructions

    def servers(self) -> tuple[str, ...]:
        """Return the servers that have accepted tools."""
        return tuple(self._read())

    def compare(self, server: str, definitions: Iterable[Definition], *, instructions: str = "") -> ToolComparison:
        """Compare what a server offers with what was accepted. Without a file, accept each tool that was never seen before.

        Args:
            instructions: What the server says about its use, for models.

        Raises:
            UsageError: The file cannot be used; the message names the place in it.
        """
        offered = list(definitions)
        if self.path is None:
            self._accept_unseen(server, offered)
        known = self._server(server)
        compared = structs.replace(
            compare_tools(server, known.tools, offered), instructions=compare_instructions(known.instructions, instructions)
        )
        for change in compared.changes if self.path is None else ():
            if change.kind != "removed":
                _log.warning(_CHANGED, one_line(server), one_line(change.tool), change.sentence())
        return compared

    def refusals(self, server: str, definitions: Iterable[Definition]) -> Mapping[str, str]:
        """Return the tools that must not be called, each with the reason for the model; see `compare`.

        Raises:
            UsageError: The file cannot be used; the message names the place in it.
        """
        return self.compare(server, definitions).quarantined

    def allows_instructions(self, server: str, instructions: str) -> bool:
        """Return whether instructions of a server are the accepted ones. Without a file, accept the first ones that are seen.

        Raises:
            UsageError: The file cannot be used; the message names the place in it.
        """
        if self.path is None:
            seen = self._seen.setdefault(server, _AcceptedServer({}))
            seen.instructions = seen.instructions or instructions
        return self.instructions(server) == instructions

    def effects(self, server: str) -> Mapping[str, Effect]:
        """Return the accepted effects of a server's tools by name.

        Raises:
            UsageError: The file cannot be used; the message names the place in it.
        """
        return {name: tool.effect for name, tool in self.tools(server).items()}

    def accept(
        self,
        server: str,
        definitions: Iterable[Definition],
        effects: Mapping[str, Effect] | None = None,
        *,
        instructions: str | None = None,
    ) -> None:
        """Accept definitions as they are. Other accepted tools of the server stay.

        Args:
            effects: The effects by the tools' names. A tool without one keeps the effect that was accepted for its name,
                and is `once` otherwise.
            instructions: The server's instructions for models, to accept them too. None: those that are accepted stay.

        Raises:
            UsageError: An effect is unknown, two definitions have one name, or the file cannot be used.
        """
        given, chosen = _by_name(server, definitions), effects or {}
        for name, effect in chosen.items():
            check("accept", f"effects[{name!r}]", effect, Effect)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

        def add(known: _AcceptedServer) -> None:
            tools = known.tools
            for name, definition in given.items():
                effect = chosen.get(name) or (tools[name].effect if name in tools else "once")
                tools[name] = AcceptedTool(definition=definition, hash=definition_hash(definition), effect=effect, accepted_at=now)
            if instructions is not None:
                known.instructions = instructions

        self._change(server, add)

    def remove(self, server: str, tools: Iterable[str] | None = None) -> None:
        """Accept these tools no longer. Default: all of the server, and its instructions."""
        names = None if tools is None else set(tools)

        def drop(known: _AcceptedServer) -> None:
            for name in [name for name in known.tools if names is None or name in names]:
                del known.tools[name]
            if names is None:
                known.instructions = ""

        if self.path is None or self.path.exists():
            self._change(server, drop)

    def _accept_unseen(self, server: str, offered: list[Definition]) -> None:
        seen = self._seen.setdefault(server, _AcceptedServer({})).tools
        for definition in offered:
            name = definition.get("name")
            if isinstance(name, str) and name not in seen:
                seen[name] = AcceptedTool(definition=definition, hash=definition_hash(definition))

    def _change(self, server: str, change: Callable[[_AcceptedServer], None]) -> None:
        if self.path is None:
            change(self._seen.setdefault(server, _AcceptedServer({})))
            return

        def rewrite(text: str | None) -> dict[str, Any]:
            everything = {} if text is None else _parse(text, cast(Path, self.path))
            known = everything.setdefault(server, _AcceptedServer({}))
            change(known)
            if not (known.tools or known.instructions):
                del everything[server]
            return _to_json(everything)

        rewrite_json(self.path, _USE, rewrite)

    def _server(self, server: str) -> _AcceptedServer:
        return self._read().get(server) or _AcceptedServer({})

    def _read(self) -> dict[str, _AcceptedServer]:
        if self.path is None:
            return self._seen
        text = read_json_text(self.path, _USE)
        return {} if text is None else _parse(text, self.path)


_CHANGED: Final = (
    "The MCP server '%s' now offers '%s', which is in quarantine: %s. Start the engine again to take it as it is. To decide on changes "
    "yourself, keep accepted tools in a file: `callgate mcp add`, then `callgate mcp accept`."
)


def _by_name(server: str, definitions: Iterable[Definition]) -> dict[str, Definition]:
    named: dict[str, Definition] = {}
    for definition in definitions:
        name = definition.get("name")
        if not isinstance(name, str):
            raise UsageError(f"A tool of the MCP server '{one_line(server)}' has no name, so it cannot be accepted. Leave it out.")
        if name in named and definition_hash(named[name]) != definition_hash(definition):
            raise UsageError(
                f"The MCP server '{one_line(server)}' offers two different tools named '{one_line(name)}', so neither can be accepted."
                " Leave them out, and tell the server's author."
            )
        named[name] = definition
    return named


def _to_json(everything: Mapping[str, _AcceptedServer]) -> dict[str, Any]:
    return {"version": _VERSION, "servers": {server: _server_to_json(known) for server, known in everything.items()}}


def _server_to_json(known: _AcceptedServer) -> dict[str, Any]:
    tools = {
        name: {"effect": one.effect, "hash": one.hash, "accepted_at": one.accepted_at, "definition": one.definition}
        for name, one in known.tools.items()
    }
    return {"tools": tools} | ({"instructions": known.instructions} if known.instructions else {})


def _parse(text: str, path: Path) -> dict[str, _AcceptedServer]:
    root = parse_json(text, path, _USE)
    version = root.get("version")
    if version != _VERSION:
        newer = isinstance(version, int) and version > _VERSION
        then = (
            "A newer callgate wrote it: update this one."
            if newer
            else f'Give the file that `callgate mcp add` wrote; it has "version": {_VERSION}.'
        )
        raise UsageError(f"{displayed(path)}: version is {one_line(repr(version), 40)}, not {_VERSION}. {then}")
    read = _FileReader(path)
    servers = read.members(root.get("servers", JsonObject()), "servers")
    return {server: read.server(entry, server) for server, entry in servers.items()}


class _FileReader:
    """Reads the parts of a file; its errors name the file and the place."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def members(self, value: object, where: str, key: str = "") -> Any:
        """Return an object, or the value of its `key`."""
        if not isinstance(value, JsonObject):
            raise self._invalid_file(where, "is not an object")
        if value.repeated:
            raise self._invalid_file(where, f"has '{one_line(value.repeated[0])}' more than once")
        if key and key not in value:
            raise self._invalid_file(where, f"has no '{key}'")
        return value[key] if key else value

    def server(self, value: object, where: str) -> _AcceptedServer:
        tools = self.members(self.members(value, where, "tools"), where)
        instructions = self.members(value, where).get("instructions", "")
        if not isinstance(instructions, str):
            raise self._invalid_file(f"{where}.instructions", "is not text")
        return _AcceptedServer({name: self.tool(one, f"{where}.{name}") for name, one in tools.items()}, instructions)

    def tool(self, value: object, where: str) -> AcceptedTool:
        entry = self.members(value, where)
        definition, effect = self.members(self.members(entry, where, "definition"), f"{where}.definition"), entry.get("effect")
        if effect not in _EFFECTS:
            raise self._invalid_file(f"{where}.effect", f"is {one_line(repr(effect), 40)}; it must be one of {', '.join(_EFFECTS)}")
        if entry.get("hash") != definition_hash(definition):
            raise self._invalid_file(f"{where}.hash", "is not the hash of the definition beside it, so one of the two was changed")
        accepted_at = entry.get("accepted_at", "")
        return AcceptedTool(definition=definition, hash=entry["hash"], effect=effect, accepted_at=str(accepted_at))

    def _invalid_file(self, where: str, what: str) -> UsageError:
        return UsageError(
            f"{displayed(self._path)}: {one_line(where)} {what}. Correct it, or delete that entry and accept the tool again with"
            " `callgate mcp accept SERVER --config FILE`."
        )
