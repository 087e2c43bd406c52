"""What rules may know of a call: computed by the engine from the final arguments, each when it is first asked for.

Paths are resolved as the file system would, never compared as the model wrote them. A fact that cannot be computed is `Unknown`, and a
deny rule that asks for it matches. Reads the file system, changes nothing.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from callgate.route import ValidatedCall

__all__ = ["FACTS", "MISSING", "UNKNOWN", "Facts"]


class Missing:
    """The call has nothing of this kind: a rule about it does not match."""


class Unknown:
    """The fact could not be established: only a deny or an ask may follow from it."""


MISSING: Final = Missing()
UNKNOWN: Final = Unknown()

_ARGUMENTS = "arguments."
_PATH_ARGUMENTS = ("path", "file", "filename", "file_path", "directory", "dir", "cwd")
_URL_ARGUMENTS = ("url", "uri", "href", "endpoint")
_COMMAND_ARGUMENTS = ("command", "cmd", "argv")
_SHELL = frozenset("|&;<>()$`\\\"'\n*?[]{}~!#\r")


class Facts:
    """The facts about one call, by name; see `FACTS`."""

    __slots__ = ("_call", "_known")

    def __init__(self, call: ValidatedCall) -> None:
        self._call = call
        self._known: dict[str, object] = {}

    def get(self, name: str) -> object:
        """The fact's value; `MISSING` where the call has none, `UNKNOWN` where it cannot be established."""
        if name.startswith(_ARGUMENTS):
            return _at(self._call.arguments, name[len(_ARGUMENTS) :])
        if name not in self._known:
            try:
                self._known[name] = FACTS[name][0](self._call)
            except Exception:
                self._known[name] = UNKNOWN
        return self._known[name]


def _at(value: object, name: str) -> object:
    if isinstance(value, dict) and name in value:
        return value[name]
    for key in name.split("."):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value


def _first(call: ValidatedCall, names: tuple[str, ...]) -> object:
    return next((call.arguments[name] for name in names if name in call.arguments), MISSING)


def _resolved(call: ValidatedCall) -> tuple[str, str] | Missing:
    """The real path that the call names and the real root of its workspace."""
    path = _first(call, _PATH_ARGUMENTS)
    if isinstance(path, Missing):
        return path
    if not isinstance(path, str) or not call.scope.workspace:
        raise ValueError("no path, or no workspace to measure it by")
    root = os.path.realpath(call.scope.workspace)
    return os.path.realpath(os.path.join(root, path)), root


def _path(call: ValidatedCall) -> object:
    found = _resolved(call)
    return found if isinstance(found, Missing) else os.path.relpath(*found)


def _inside(call: ValidatedCall) -> object:
    found = _resolved(call)
    if isinstance(found, Missing):
        return found
    path, root = found
    return path == root or path.startswith(root.rstrip("/") + "/")


def _bytes(call: ValidatedCall) -> object:
    found = _resolved(call)
    return found if isinstance(found, Missing) else os.path.getsize(found[0]) if os.path.exists(found[0]) else 0


def _host(call: ValidatedCall) -> object:
    url = _first(call, _URL_ARGUMENTS)
    return url if isinstance(url, Missing) else (urlsplit(str(url)).hostname or UNKNOWN)


def _scheme(call: ValidatedCall) -> object:
    url = _first(call, _URL_ARGUMENTS)
    return url if isinstance(url, Missing) else urlsplit(str(url)).scheme.lower()


def _private(call: ValidatedCall) -> object:
    """Whether the host is a literal address that is not public, or a local name. Names are not looked up here."""
    host = _host(call)
    if not isinstance(host, str):
        return host
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return False


def _words(call: ValidatedCall) -> list[str] | Missing:
    """The command's words, if it is one simple command of literal words."""
    command = _first(call, _COMMAND_ARGUMENTS)
    if isinstance(command, Missing):
        return command
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return command
    if not isinstance(command, str) or _SHELL & set(command) or not command.strip():
        raise ValueError("not one simple command of literal words")
    words = shlex.split(command)
    if "=" in words[0]:
        raise ValueError("sets a variable")
    return words


def _program(call: ValidatedCall) -> object:
    words = _words(call)
    return words if isinstance(words, Missing) else words[0]


def _command(call: ValidatedCall) -> object:
    words = _words(call)
    return words if isinstance(words, Missing) else " ".join(words)


def _size(call: ValidatedCall) -> object:
    content = call.arguments.get("content", MISSING)
    return len(content.encode("utf-8", "surrogatepass")) if isinstance(content, str) else content


FACTS: Final[dict[str, tuple[Callable[[ValidatedCall], object], str]]] = {
    "tool": (lambda call: call.tool.name, "the tool's name"),
    "layer": (lambda call: call.tool.layer, "builtin, capability or mcp"),
    "effect": (lambda call: call.tool.effect, "none, idempotent or once"),
    "category": (lambda call: call.tool.category, "safe_chain, terminal, dangerous or async_required"),
    "principal": (lambda call: call.scope.principal, "who is asking"),
    "actor": (lambda call: call.scope.actor, "whom the call acts as"),
    "conversation": (lambda call: call.scope.conversation, "the conversation's id"),
    "workspace": (lambda call: call.scope.workspace, "the workspace's root folder"),
    "path": (_path, "the real path, relative to the workspace; begins with .. outside"),
    "path.inside": (_inside, "whether the real path is in the workspace"),
    "path.bytes": (_bytes, "the size of the file at the path; 0 where there is none"),
    "content.bytes": (_size, "the size of the argument `content` in UTF-8"),
    "url.host": (_host, "the host of the URL, lower-case"),
    "url.scheme": (_scheme, "the scheme of the URL, lower-case"),
    "url.private": (_private, "whether the URL's host is a local name or no public address"),
    "command": (_command, "the command, where it is one simple command of literal words"),
    "command.program": (_program, "its first word"),
}
"""Every fact, how it is computed and what it means. `arguments.NAME` reads an argument; dots go deeper."""
