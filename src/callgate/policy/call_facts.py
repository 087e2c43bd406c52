"""Compute the facts that rules use, from a call's final arguments, each on first use.

Paths are resolved like the file system does, never compared as written. If a fact can come from several arguments, all of them are judged,
so that a second argument cannot bypass a rule. A fact that cannot be computed is `UNKNOWN`, which matches deny rules. A value that is too
large raises `TooLarge`, which denies the call. The time to compute a fact is linear in the size of its value. Reads the file system but
does not change it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from callgate._engine_limits import RULE_COMMAND_CHARS, RULE_LIST_ITEMS, RULE_PATH_BYTES, RULE_TEXT_CHARS, RULE_URL_CHARS
from callgate._json import canonical
from callgate._network_addresses import is_local_name, is_public, scheme_and_host
from callgate._workspace.protected_names import OWN_FOLDER, is_own
from callgate.policy.commands import command_text, command_words, possible_commands, possible_programs, runs_others
from callgate.policy.ignored_paths import ProjectIgnores
from callgate.stage_types import ValidatedCall

__all__ = ["ARGUMENTS", "FACTS", "MISSING", "PATH_FACTS", "UNKNOWN", "WIDER_FACTS", "Fact", "Facts", "HasToWait", "TooLarge"]


class Missing:
    """The call does not have this fact, so a rule about it does not match."""


class Unknown:
    """The fact could not be computed. A condition on it counts as true for every rule but an allow rule."""


class TooLarge(Exception):
    """The value is too large to judge, so the call is denied; the message contains size and limit."""


class HasToWait(Exception):
    """The fact needs the file system or a large value, so it must not be computed on the event loop's thread."""


MISSING: Final = Missing()
UNKNOWN: Final = Unknown()

ARGUMENTS: Final = "arguments."
_PATH_ARGUMENTS = ("path", "file", "filename", "file_path", "directory", "dir", "cwd")
_URL_ARGUMENTS = ("url", "uri", "href", "endpoint")
_COMMAND_ARGUMENTS = ("command", "cmd", "argv")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_AT_ONCE = 65_536
"""The maximum characters of a value, or bytes of a list's texts, to judge on the event loop's thread."""
_ITEMS_AT_ONCE = 1_000


class Fact(Struct, frozen=True, kw_only=True):
    """One fact: its meaning, its computation, and its possible values.

    Args:
        meaning: The text for the reference.
        of_call: Computes the fact from the call, if it does not depend on an argument.
        of_argument: Computes the fact from the value of one of `arguments`; all given arguments must agree.
        of_visited: Computes the fact from the real path of a file that a call finds, if `Facts.at` does not have it.
        kind: The type of the fact's values.
        values: All possible values, if they are few.
        lower: Whether the values are lower-case.
        reads_files: Whether computing the fact reads the file system.
        shown: Whether a reason may contain the value; the model is only shown values that it wrote itself.
    """

    meaning: str
    of_call: Callable[[ValidatedCall], object] | None = None
    of_argument: Callable[[ValidatedCall, object], object] | None = None
    of_visited: Callable[[ProjectIgnores, str], object] | None = None
    arguments: tuple[str, ...] = ()
    kind: type = str
    values: tuple[str, ...] = ()
    lower: bool = False
    reads_files: bool = False
    shown: bool = True


class Facts:
    """The facts about one call, by name; see `FACTS`.

    Args:
        may_wait: Whether the file system may be read and large values compared; else such a fact raises `HasToWait`.
    """

    __slots__ = ("_call", "_known", "_may_wait", "_project", "_visited")

    def __init__(self, call: ValidatedCall, *, may_wait: bool = True) -> None:
        self._call = call
        self._may_wait = may_wait
        self._known: dict[str, object] = {}
        self._project: ProjectIgnores | None = None
        self._visited = ""

    def get(self, name: str) -> object:
        """Return the fact's value; `MISSING` if the call has none, `UNKNOWN` if it cannot be computed.

        Raises:
            TooLarge: The value is too large to judge.
            HasToWait: The fact must not be computed on this thread.
        """
        known = self._known
        if name not in known:
            fact = _COMPUTED.get(name)
            if fact is None:
                known[name] = self._argument(name.removeprefix(ARGUMENTS))
            elif fact.of_visited is not None and self._project is not None:
                known[name] = self._of_visited(fact.of_visited, self._project)
            else:
                known[name] = self._compute(fact)
        return known[name]

    def at(self, path: str, size_bytes: int) -> Facts:
        """Return the facts of the same call as if its path argument were another file of the workspace.

        Args:
            path: The file's real path.
            size_bytes: The file's size.
        """
        facts = Facts(self._call, may_wait=self._may_wait)
        facts._known = {name: value for name, value in self._known.items() if name not in PATH_FACTS}
        facts._known |= {"path": path, "path.inside": True, "path.bytes": size_bytes, "own_files": False}
        self._project = self._project or ProjectIgnores(self._call.scope.workspace)
        facts._project, facts._visited = self._project, path
        return facts

    def _argument(self, name: str) -> object:
        value = _value_at(self._call.arguments, name)
        size = _size_of(value, name)
        if size > _AT_ONCE and not self._may_wait:
            raise HasToWait
        return value

    def _compute(self, fact: Fact) -> object:
        """Return the fact if all its given arguments agree, else `UNKNOWN`."""
        if fact.of_call is not None:
            return fact.of_call(self._call)
        given = {name: self._call.arguments[name] for name in fact.arguments if name in self._call.arguments}
        if not given:
            return MISSING
        sizes = [_check_size(name, value) for name, value in given.items()]
        if not self._may_wait and (fact.reads_files or sum(sizes) > _AT_ONCE):
            raise HasToWait
        first, *others = [self._of_value(fact, value) for value in given.values() if value is not None] or [UNKNOWN]
        return first if all(other == first for other in others) else UNKNOWN

    def _of_value(self, fact: Fact, value: object) -> object:
        assert fact.of_argument is not None
        try:
            return fact.of_argument(self._call, value)
        except Exception:
            return UNKNOWN

    def _of_visited(self, of_visited: Callable[[ProjectIgnores, str], object], project: ProjectIgnores) -> object:
        try:
            return of_visited(project, self._visited)
        except Exception:
            return UNKNOWN


def _check_size(name: str, value: object) -> int:
    """Return the size of a path, URL or command."""
    if name in _COMMAND_ARGUMENTS:
        words = value if isinstance(value, list) else [value]
        size = len(words) + sum(len(word) for word in words if isinstance(word, str))
        most, unit = RULE_COMMAND_CHARS, "characters"
    elif not isinstance(value, str):
        return 0
    elif name in _URL_ARGUMENTS:
        size, most, unit = len(value), RULE_URL_CHARS, "characters"
    else:
        size, most, unit = len(value.encode("utf-8", "surrogatepass")), RULE_PATH_BYTES, "bytes"
    if size > most:
        raise TooLarge(f"`{name}` has {size:,} {unit}, and rules judge at most {most:,}. Make it shorter")
    return size


def _size_of(value: object, name: str) -> int:
    """Return the size of an argument for comparisons."""
    size = len(value) if isinstance(value, str) else 0
    if isinstance(value, list):
        if len(value) > RULE_LIST_ITEMS:
            raise TooLarge(f"`{name}` has {len(value):,} items, and rules judge at most {RULE_LIST_ITEMS:,}. Send fewer in one call")
        size = sum(len(item) for item in value if isinstance(item, str)) + (_AT_ONCE if len(value) > _ITEMS_AT_ONCE else 0)
    if size > RULE_TEXT_CHARS:
        raise TooLarge(f"`{name}` has {size:,} characters, and rules judge at most {RULE_TEXT_CHARS:,}. Make it shorter")
    return size


def _value_at(arguments: Mapping[str, object], name: str) -> object:
    """Return the value at a dotted path, or of a key that contains the dots; `UNKNOWN` if both exist and differ."""
    if "." not in name:
        return arguments.get(name, MISSING)
    nested, literal = _descend(arguments, name), arguments.get(name, MISSING)
    if nested is MISSING or literal is MISSING:
        return literal if nested is MISSING else nested
    return nested if nested is not UNKNOWN and canonical(nested) == canonical(literal) else UNKNOWN


def _descend(value: object, name: str) -> object:
    for key in name.split("."):
        if isinstance(value, Mapping):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and key.isascii() and key.isdigit():
            value = value[int(key)] if int(key) < len(value) else MISSING
        else:
            return MISSING if value is None else UNKNOWN  # a list or text where the rule expects an object
        if value is MISSING:
            return MISSING
    return value


def _resolve(call: ValidatedCall, path: object) -> tuple[str, str]:
    """Return the real path of an argument and the real root of the call's workspace."""
    if not isinstance(path, str) or not call.scope.workspace:
        raise ValueError("no path, or no workspace to measure it by")
    root = os.path.realpath(call.scope.workspace)
    return os.path.realpath(os.path.join(root, path)), root


def _path(call: ValidatedCall, value: object) -> str:
    return os.path.relpath(*_resolve(call, value))


def _is_inside(call: ValidatedCall, value: object) -> bool:
    path, root = _resolve(call, value)
    return path == root or path.startswith(root.rstrip("/") + "/")


def _bytes(call: ValidatedCall, value: object) -> int:
    path, _ = _resolve(call, value)
    return os.path.getsize(path) if os.path.isfile(path) else 0


def _is_ignored(call: ValidatedCall, value: object) -> object:
    if not isinstance(value, str) or not call.scope.workspace:
        raise ValueError("no path, or no workspace to measure it by")
    return _or_unknown(ProjectIgnores(call.scope.workspace).ignores(value))


def _or_unknown(found: bool | None) -> object:
    return UNKNOWN if found is None else found


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


def _is_private(call: ValidatedCall, value: object) -> bool:
    """Return whether the host is a literal address that is not public, or a local name. Names are not resolved."""
    _, name, address = scheme_and_host(_text(value))
    return is_local_name(name) if address is None else not is_public(address)


def _program(call: ValidatedCall, value: object) -> object:
    words = command_words(value)
    return UNKNOWN if runs_others(words) else words[0]


def _programs(call: ValidatedCall, value: object) -> object:
    return _one_or_all(possible_programs(command_words(value)))


def _command(call: ValidatedCall, value: object) -> str:
    return command_text(command_words(value))


def _commands(call: ValidatedCall, value: object) -> object:
    return _one_or_all(possible_commands(command_words(value)))


def _one_or_all(values: list[str]) -> object:
    return values if len(values) > 1 else values[0]


def _touches_own_files(call: ValidatedCall, value: object) -> bool:
    """Return whether a path is in callgate's own folder, or a word of a command contains its name."""
    texts = value if isinstance(value, list) else [value]
    if any(OWN_FOLDER in _text(text).casefold() for text in texts):
        return True
    return isinstance(value, str) and bool(call.scope.workspace) and "\0" not in value and is_own(_path(call, value))


def _size(call: ValidatedCall) -> object:
    content = call.arguments.get("content", MISSING)
    return len(content.encode("utf-8", "surrogatepass")) if isinstance(content, str) else content


def _about_path(of_argument: Callable[[ValidatedCall, object], object], meaning: str, kind: type = str, *, shown: bool = False) -> Fact:
    return Fact(of_argument=of_argument, meaning=meaning, arguments=_PATH_ARGUMENTS, kind=kind, reads_files=True, shown=shown)


def _about_url(of_argument: Callable[[ValidatedCall, object], object], meaning: str, kind: type = str) -> Fact:
    return Fact(of_argument=of_argument, meaning=meaning, arguments=_URL_ARGUMENTS, kind=kind, lower=True)


def _about_command(of_argument: Callable[[ValidatedCall, object], object], meaning: str) -> Fact:
    return Fact(of_argument=of_argument, meaning=meaning, arguments=_COMMAND_ARGUMENTS)


FACTS: Final[dict[str, Fact]] = {
    "tool": Fact(of_call=lambda call: call.tool.name, meaning="the tool's name"),
    "layer": Fact(of_call=lambda call: call.tool.layer, meaning="builtin, capability or mcp", values=("builtin", "capability", "mcp")),
    "server": Fact(of_call=lambda call: call.tool.server or MISSING, meaning="the name of the MCP server or plugin that has the tool"),
    "effect": Fact(of_call=lambda call: call.tool.effect, meaning="none, idempotent or once", values=("none", "idempotent", "once")),
    "category": Fact(
        of_call=lambda call: call.tool.category,
        meaning="safe_chain, terminal, dangerous or async_required",
        values=("safe_chain", "terminal", "dangerous", "async_required"),
    ),
    "principal": Fact(of_call=lambda call: call.scope.principal, meaning="who is asking", shown=False),
    "actor": Fact(of_call=lambda call: call.scope.actor, meaning="whom the call acts as", shown=False),
    "conversation": Fact(of_call=lambda call: call.scope.conversation, meaning="the conversation's id", shown=False),
    "workspace": Fact(of_call=lambda call: call.scope.workspace, meaning="the workspace's root folder", shown=False),
    "path": _about_path(_path, "the real path, relative to the workspace; begins with .. outside"),
    "path.inside": _about_path(_is_inside, "whether the real path is in the workspace", bool, shown=True),
    "path.bytes": _about_path(_bytes, "the size of the file at the path; 0 where there is none", int),
    "path.ignored": Fact(
        of_argument=_is_ignored,
        of_visited=lambda project, path: _or_unknown(project.ignores_file(path)),
        meaning="whether the project ignores the path: .gitignore files, .git/info/exclude, node_modules and the like",
        arguments=_PATH_ARGUMENTS,
        kind=bool,
        reads_files=True,
    ),
    "own_files": Fact(
        of_argument=_touches_own_files,
        meaning="whether a path leads into callgate's own folder, or a command names it",
        arguments=(*_PATH_ARGUMENTS, *_COMMAND_ARGUMENTS),
        kind=bool,
        reads_files=True,
    ),
    "content.bytes": Fact(of_call=_size, meaning="the size of the argument `content` in UTF-8", kind=int),
    "url.host": _about_url(_host, "the host of the URL, lower-case"),
    "url.scheme": _about_url(_scheme, "the scheme of the URL, lower-case"),
    "url.private": _about_url(_is_private, "whether the URL's host is a local name or no public address", bool),
    "command": _about_command(_command, "the command's words, one space between them, where it is one simple command of literal words"),
    "command.program": _about_command(_program, "its first word; unknown if it runs another program"),
}
"""Every fact, by name. `arguments.NAME` reads an argument; dots lead into nested objects."""
WIDER_FACTS: Final = {"command": "command with those that it may run", "command.program": "programs that the command may run"}
"""The names of facts that rules which do not allow read in place of a fact."""
_COMPUTED: Final = FACTS | {
    WIDER_FACTS["command"]: _about_command(_commands, "the command, and the commands that it may run"),
    WIDER_FACTS["command.program"]: _about_command(_programs, "the programs that the command may run"),
}
PATH_FACTS: Final = frozenset(name for name, fact in FACTS.items() if fact.reads_files)
