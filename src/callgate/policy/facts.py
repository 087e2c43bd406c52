"""What rules may know of a call: computed by the engine from the final arguments, each when it is first asked for.

Paths are resolved as the file system would, never compared as the model wrote them. Where several arguments could be the one that a fact
is about, all of them are judged: a second one beside the first is no way around a rule. A fact that cannot be computed is `Unknown`, and
a deny rule that asks for it matches. Reads the file system, changes nothing.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Final

from callgate._addresses import is_local_name, is_public, scheme_and_host
from callgate._json import canonical
from callgate.route import ValidatedCall

__all__ = ["ARGUMENTS", "FACTS", "MISSING", "UNKNOWN", "Facts"]


class Missing:
    """The call has nothing of this kind: a rule about it does not match."""


class Unknown:
    """The fact could not be established: only a deny or an ask may follow from it."""


MISSING: Final = Missing()
UNKNOWN: Final = Unknown()

ARGUMENTS: Final = "arguments."
_PATH_ARGUMENTS = ("path", "file", "filename", "file_path", "directory", "dir", "cwd")
_URL_ARGUMENTS = ("url", "uri", "href", "endpoint")
_COMMAND_ARGUMENTS = ("command", "cmd", "argv")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_SHELL = frozenset("|&;<>()$`\\\"'\n*?[]{}~!#\r")


class Facts:
    """The facts about one call, by name; see `FACTS`."""

    __slots__ = ("_call", "_known", "arguments")

    def __init__(self, call: ValidatedCall) -> None:
        self._call = call
        self.arguments = call.arguments
        self._known: dict[str, object] = {}

    def get(self, name: str) -> object:
        """The fact's value; `MISSING` where the call has none, `UNKNOWN` where it cannot be established."""
        known = self._known
        if name not in known:
            try:
                at = name.removeprefix(ARGUMENTS)
                known[name] = FACTS[name][0](self._call) if at == name else _at(self._call.arguments, at)
            except Exception:
                known[name] = UNKNOWN
        return known[name]


def _at(arguments: Mapping[str, object], name: str) -> object:
    """The dotted path; a key that is written with the dots only where there is no such path, and neither where the two differ."""
    if "." not in name:
        return arguments.get(name, MISSING)
    nested, literal = _deep(arguments, name), arguments.get(name, MISSING)
    if nested is MISSING or literal is MISSING:
        return literal if nested is MISSING else nested
    return nested if nested is not UNKNOWN and canonical(nested) == canonical(literal) else UNKNOWN


def _deep(value: object, name: str) -> object:
    for key in name.split("."):
        if isinstance(value, Mapping):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and key.isascii() and key.isdigit():
            value = value[int(key)] if int(key) < len(value) else MISSING
        else:
            return MISSING if value is None else UNKNOWN  # a list or a text where the rule expects an object
        if value is MISSING:
            return MISSING
    return value


Judge = Callable[[ValidatedCall, object], object]


def _agreed(names: tuple[str, ...], judge: Judge) -> Callable[[ValidatedCall], object]:
    """The fact on which all of these arguments agree, as far as they are there."""

    def fact(call: ValidatedCall) -> object:
        given = [call.arguments[name] for name in names if name in call.arguments]
        if not given:
            return MISSING
        first, *others = [judge(call, value) for value in given if value is not None] or [UNKNOWN]
        return first if all(other == first for other in others) else UNKNOWN

    return fact


def _resolved(call: ValidatedCall, path: object) -> tuple[str, str]:
    """The real path that an argument names and the real root of the call's workspace."""
    if not isinstance(path, str) or not call.scope.workspace:
        raise ValueError("no path, or no workspace to measure it by")
    root = os.path.realpath(call.scope.workspace)
    return os.path.realpath(os.path.join(root, path)), root


def _path(call: ValidatedCall, value: object) -> str:
    return os.path.relpath(*_resolved(call, value))


def _inside(call: ValidatedCall, value: object) -> bool:
    path, root = _resolved(call, value)
    return path == root or path.startswith(root.rstrip("/") + "/")


def _bytes(call: ValidatedCall, value: object) -> int:
    path, _ = _resolved(call, value)
    return os.path.getsize(path) if os.path.exists(path) else 0


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _host(call: ValidatedCall, value: object) -> str:
    return scheme_and_host(_text(value))[1]


def _scheme(call: ValidatedCall, value: object) -> str:
    scheme, colon, _ = _text(value).partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise ValueError("no scheme, or one that is not plain")
    return scheme.lower()


def _private(call: ValidatedCall, value: object) -> bool:
    """Whether the host is a literal address that is not public, or a local name. Names are not looked up here."""
    _, name, address = scheme_and_host(_text(value))
    return is_local_name(name) if address is None else not is_public(address)


def _words(value: object) -> list[str]:
    """The command's words, if it is one simple command of literal words."""
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return value
    command = _text(value)
    if _SHELL & set(command) or not command.strip():
        raise ValueError("not one simple command of literal words")
    words = shlex.split(command)
    if "=" in words[0]:
        raise ValueError("sets a variable")
    return words


def _program(call: ValidatedCall, value: object) -> str:
    return _words(value)[0]


def _command(call: ValidatedCall, value: object) -> str:
    return " ".join(_words(value))


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
    "path": (_agreed(_PATH_ARGUMENTS, _path), "the real path, relative to the workspace; begins with .. outside"),
    "path.inside": (_agreed(_PATH_ARGUMENTS, _inside), "whether the real path is in the workspace"),
    "path.bytes": (_agreed(_PATH_ARGUMENTS, _bytes), "the size of the file at the path; 0 where there is none"),
    "content.bytes": (_size, "the size of the argument `content` in UTF-8"),
    "url.host": (_agreed(_URL_ARGUMENTS, _host), "the host of the URL, lower-case"),
    "url.scheme": (_agreed(_URL_ARGUMENTS, _scheme), "the scheme of the URL, lower-case"),
    "url.private": (_agreed(_URL_ARGUMENTS, _private), "whether the URL's host is a local name or no public address"),
    "command": (_agreed(_COMMAND_ARGUMENTS, _command), "the command, where it is one simple command of literal words"),
    "command.program": (_agreed(_COMMAND_ARGUMENTS, _program), "its first word"),
}
"""Every fact, how it is computed and what it means. `arguments.NAME` reads an argument; dots go deeper."""
