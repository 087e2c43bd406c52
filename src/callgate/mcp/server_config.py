"""`McpServer`: the configuration of one MCP server, and `mcp`, which makes one from a command or an address.

A value: it starts nothing, and each engine makes its own connection from it. Wrong settings are refused here, before anything starts.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, Protocol, TypedDict, Unpack, cast, get_args, runtime_checkable
from urllib.parse import urlsplit

from msgspec import Meta

from callgate._network_addresses import NotPlain
from callgate._option_checks import Count, NamedStruct, Seconds, by_name_with, check, refuse_unknown, shown
from callgate._server_processes.shown_command import shown_command, shown_word
from callgate.calls import Effect
from callgate.errors import UsageError
from callgate.mcp._http_headers import check_headers
from callgate.mcp._oauth_addresses import is_private_connection
from callgate.mcp._revisions import Era
from callgate.mcp.oauth import OAuth
from callgate.tools.attribute_options import ATTRIBUTE_OPTIONS

__all__ = ["Answers", "ChecksDefinitions", "ChecksInstructions", "Isolation", "McpServer", "ServerOptions", "mcp"]

Isolation = Literal["principal", "shared"]
"""How clients of a gateway share the sessions with a server; see `McpServer.isolation`."""

Answers = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""A handler of a server's requests: given the `params` of the request, it returns the `result`."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
_LAUNCHERS = frozenset({"bunx", "docker", "node", "npx", "npm", "pipx", "podman", "pnpm", "python", "python3", "uv", "uvx", "yarn"})
_LAUNCHER_WORDS = frozenset({"dlx", "exec", "run", "tool", "x"})
_GENERIC_NAMES = frozenset({"__main__", "app", "bin", "build", "dist", "index", "lib", "main", "out", "server", "src", "/"})
_AFFIXES = re.compile(r"^(?:mcp[-_]server[-_]|server[-_]|mcp[-_])|(?:[-_]mcp[-_]server|[-_]server|[-_]mcp)$")


@runtime_checkable
class ChecksDefinitions(Protocol):
    """Compares the tools of a server with those that the operator has accepted. `AcceptedTools` is the implementation."""

    def refusals(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
        """Return the tools that must not be called until the operator accepts them.

        Called in a thread with the whole list each time that the server has sent it, so that a new acceptance is seen.

        Args:
            definitions: The definitions as the server sent them.

        Returns:
            By the tool's name on the server: the fact, the cause and the next step, for the model and the operator. Accepted tools are not
                in it.
        """
        ...

    def effects(self, server: str) -> Mapping[str, Effect]:
        """Return the effects that the operator has accepted, by the tool's name on the server."""
        ...


@runtime_checkable
class ChecksInstructions(Protocol):
    """Compares the instructions of a server for models with those that the operator has accepted. `AcceptedTools` does."""

    def allows_instructions(self, server: str, instructions: str) -> bool:
        """Return whether clients may get these instructions. Called in a thread each time that the server has listed its tools."""
        ...


class McpServer(NamedStruct, frozen=True, kw_only=True, eq=False):
    """The configuration of an MCP server, with a `command` or a `url`.

    Raises:
        UsageError: An option is unknown, or has a wrong value.
    """

    name: str
    """The server's name for people, logs and prefixes: at most 64 letters, digits, `_`, `-` and `.`."""
    command: tuple[str, ...] = ()
    """The program and its arguments, for a server that is a child process."""
    env: Mapping[str, str] = {}
    """Variables of the child process, in addition to `HOME`, `PATH`, `USER` and a few others. It gets no other variables of this process,
    because they may be secrets."""
    cwd: str = ""
    """The folder in which the child process starts; if empty, that of this process."""
    url: str = ""
    """The address of a server on the network."""
    headers: Mapping[str, str] = {}
    """Headers of every request to `url`, such as `Authorization`."""
    auth: OAuth | None = None
    """Gets access tokens from the user's authorization when the server at `url` requires them; None: only `headers` authorize."""
    tools: tuple[str, ...] | None = None
    """The names of the tools to register, as the server calls them; None: all."""
    effects: Mapping[str, Effect] = {}
    """The effects of tools, by the name on the server. Without one, a tool is `once`: what the server says of its own tools is not
    believed."""
    options: Mapping[str, Mapping[str, Any]] = {}
    """Options of `@tool` by the name on the server, such as `{"fetch": {"timeout_s": 10, "cacheable": True}}`."""
    prefix: bool | None = None
    """Whether tools are named `SERVER.TOOL`; None: only if another tool has the name already."""
    timeout_s: float | None = None
    """Seconds for a call of a tool that has no `timeout_s` in `options`; None: the engine's timeout."""
    start_timeout_s: float = 30.0
    """Seconds for a start: the process, the negotiation and the list of tools."""
    parallel: int | None = None
    """How many calls of this server may run at the same time; None: no limit."""
    accepted: str | os.PathLike[str] | ChecksDefinitions | None = None
    """The file of the definitions that the operator has accepted, or `AcceptedTools`. Tools that are new or have changed cannot be called
    until they are accepted. None: the first definition of a tool that an engine sees is accepted for its life, and a later one is not.
    """
    required: bool = False
    """Whether `async with Engine` raises if the server cannot be started. If False, its tools answer with the reason."""
    elicitation: Answers | None = None
    """Answers a server's question to the user, given `message`, `requestedSchema` and so on, by `{"action": "accept", "content": {...}}`,
    or with the action `decline` or `cancel`. None: the server gets the answer that no user can be asked."""
    sampling: Answers | None = None
    """Runs a language model for the server, given the `params` of `sampling/createMessage`. None: the server is told that there is none."""
    roots: tuple[str | os.PathLike[str], ...] = ()
    """The folders to work in, as paths or `file:` URIs, declared to the server. They do not confine it."""
    isolation: Isolation | None = None
    """Which clients of a gateway share a session with this server. None: those that may share one and have the same capabilities, if the
    server has sessions; a server of the stateless era is shared by all. `principal`: only those that may share one, in both eras. `shared`:
    all, so that a server with sessions is offered nothing that only one client could answer. Without a gateway there is one session."""
    era: Era | None = None
    """The era to use with a server that supports both: `handshake` (revisions up to 2025-11-25) or `stateless` (since 2026-07-28). None:
    `stateless`, except for the clients of a gateway that use a handshake themselves and answer requests of servers."""
    client_tools: bool = False
    """Whether the tools are listed that the server has only for clients that can be asked (elicitation, sampling, roots) or show apps, and
    those that appear in the session of a client, for clients with its key. For a server behind a gateway: a call then runs in a session
    with what its own client can do, and is not sent if that one lacks the tool."""
    max_sessions: int = 32
    """The most sessions of single clients that are open at a time, 1 to 1,000."""
    session_idle_s: float = 600.0
    """Seconds after which a session of a single client is closed that was not used."""
    problem: str = ""
    """Why this server cannot be started, as a sentence; a start fails with it. `read_mcp_servers` sets it, for example if a variable that
    the file uses is not set."""

    def __post_init__(self) -> None:
        _check_server(self)

    @property
    def named_tools(self) -> tuple[str, ...]:
        """The names of tools in the configuration."""
        return (*(self.tools or ()), *self.effects, *self.options)

    @property
    def gated_tools(self) -> tuple[str, ...]:
        """The names of tools with `requires_approval` in the configuration."""
        return tuple(name for name, options in self.options.items() if options.get("requires_approval"))

    def __repr__(self) -> str:
        """Return the name and the target without credentials; environment and headers may be secrets."""
        return f"McpServer({self.name!r}, {shown_word(self.url) if self.url else shown_command(self.command)!r})"


class ServerOptions(TypedDict, total=False):
    """The options of `mcp`, which are the attributes of `McpServer` with the same name and default."""

    env: Mapping[str, str]
    cwd: str
    headers: Mapping[str, str]
    auth: OAuth | None
    tools: tuple[str, ...] | None
    effects: Mapping[str, Effect]
    options: Mapping[str, Mapping[str, Any]]
    prefix: bool | None
    timeout_s: float | None
    start_timeout_s: float
    parallel: int | None
    accepted: str | os.PathLike[str] | ChecksDefinitions | None
    required: bool
    elicitation: Answers | None
    sampling: Answers | None
    roots: tuple[str | os.PathLike[str], ...]
    isolation: Isolation | None
    era: Era | None
    client_tools: bool
    max_sessions: int
    session_idle_s: float


@by_name_with(ServerOptions)
def mcp(target: str | Iterable[str], *, name: str = "", **options: Unpack[ServerOptions]) -> McpServer:
    """Return the configuration of an MCP server.

    Args:
        target: A command as in a shell (`"uvx mcp-server-git"`) or as a list of words, or the `http` address of a server. No shell is
            involved: variables and `~` are not replaced.
        name: The server's name. If empty, it is taken from the command or the host: `git` for both examples above and below.
        options: See `McpServer`.

    Raises:
        UsageError: The command or an option cannot be used.
    """
    if isinstance(target, str) and re.match(r"https?://", target.strip(), re.IGNORECASE):
        url = target.strip()
        return McpServer(name=name or _name_of_host(url), url=url, **options)
    if isinstance(target, str) and (scheme := re.match(r"\s*([a-z][a-z0-9+.-]*)://", target, re.IGNORECASE)):
        raise UsageError(
            f"mcp({shown(target)}): MCP has no transport for {scheme[1]}. Give an address that begins with http, or a command."
        )
    command = _words(target)
    return McpServer(name=name or _name_of_command(command), command=command, **options)


def _words(target: object) -> tuple[str, ...]:
    if isinstance(target, str):
        try:
            words: tuple[object, ...] = tuple(shlex.split(target))
        except ValueError as error:
            raise UsageError(f"mcp({target!r:.200}): the command cannot be read ({error}). Give a list of words instead.") from error
    elif isinstance(target, Iterable) and not isinstance(target, (bytes, Mapping)):
        words = tuple(os.fspath(word) if isinstance(word, os.PathLike) else word for word in target)
    else:
        words = ()
    if not words or not all(isinstance(word, str) for word in words) or not words[0]:
        raise UsageError(f"mcp({shown(target)}): give a command, as text or as a list of texts, or an address that begins with http.")
    return cast("tuple[str, ...]", words)


def _name_of_command(command: tuple[str, ...]) -> str:
    """Return a short name for a command: that of the program, or what a launcher such as `uvx` is told to run."""
    words = [PurePath(command[0]).name, *(word for word in command[1:] if not word.startswith("-"))]
    while len(words) > 1 and (words[0] in _LAUNCHERS or words[0] in _LAUNCHER_WORDS or re.fullmatch(r"python3\.\d+", words[0])):
        words.pop(0)
    return _shorten(_program_name(PurePath(words[0])))


def _program_name(path: PurePath) -> str:
    """Return the name of a program's file without its version and ending, or of its folder if the file is called `index.js` or the like."""
    for part in reversed(path.parts):
        name = re.sub(r"(?:@[^/]*|[=<>~\[].*|\.(?:py|js|mjs|cjs|ts))$", "", part)
        if name and name not in _GENERIC_NAMES:
            return name
    return path.stem


def _name_of_host(url: str) -> str:
    try:
        host = urlsplit(url).hostname or "server"
    except ValueError:
        host = "server"
    if re.fullmatch(r"[0-9.]+|\[.*|.*:.*", host):
        return "server"
    labels = [label for label in host.split(".")[:-1] if label not in ("www", "mcp", "api")]
    return _shorten(labels[-1] if labels else host)


def _shorten(text: str) -> str:
    bare = _AFFIXES.sub("", text) or text
    return re.sub(r"[^A-Za-z0-9_.\-]", "-", bare).strip("-.")[:64] or "server"


_KINDS: Mapping[str, Any] = {
    "name": str,
    "cwd": str,
    "url": str,
    "prefix": bool | None,
    "timeout_s": Seconds | None,
    "start_timeout_s": Seconds,
    "parallel": Count | None,
    "required": bool,
    "isolation": Isolation | None,
    "era": Era | None,
    "client_tools": bool,
    "max_sessions": Annotated[int, Meta(ge=1, le=1_000)],
    "session_idle_s": Seconds,
    "problem": str,
}


def _check_server(server: McpServer) -> None:
    for option, kind in _KINDS.items():
        check("McpServer", option, getattr(server, option), kind)
    if not _NAME.fullmatch(server.name):
        raise _invalid_option(server, "name", "at most 64 letters, digits, '_', '-' and '.', the first of them a letter, digit or '_'")
    if bool(server.command) == bool(server.url):
        raise UsageError(f"McpServer(name={server.name!r}) needs a command or a url, and not both. Write mcp('uvx mcp-server-git').")
    for option in ("command", "roots"):
        given: object = getattr(server, option)
        kinds = (str, os.PathLike) if option == "roots" else str
        if not isinstance(given, (tuple, list)) or not all(isinstance(word, kinds) for word in given):
            raise _invalid_option(server, option, "a tuple of texts")
    chosen: object = server.tools
    if chosen is not None and not (isinstance(chosen, (tuple, list)) and all(isinstance(one, str) for one in chosen)):
        raise _invalid_option(server, "tools", "a tuple of names")
    for option in ("env", "headers"):
        _check_texts(server, option)
    _check_address(server)
    _check_tool_settings(server)
    for option in ("elicitation", "sampling"):
        if getattr(server, option) is not None and not callable(getattr(server, option)):
            raise _invalid_option(server, option, "an async function")
    if not isinstance(server.accepted, (str, os.PathLike, ChecksDefinitions, type(None))):
        raise _invalid_option(server, "accepted", "a path or AcceptedTools")


def _check_texts(server: McpServer, option: str) -> None:
    given: object = getattr(server, option)
    if not isinstance(given, Mapping) or not all(isinstance(key, str) and isinstance(value, str) for key, value in given.items()):
        raise UsageError(f"McpServer({option}=...) of {server.name!r} must be a dict of texts. Its values are not shown here.")
    if any(mark in text for pair in given.items() for text in pair for mark in "\0\r\n"[: 1 if option == "env" else 3]):
        raise UsageError(f"McpServer({option}=...) of {server.name!r} has a text with a line end or a null character. Remove it.")


def _check_address(server: McpServer) -> None:
    if not server.url:
        if server.headers or server.auth is not None:
            raise UsageError(f"McpServer(name={server.name!r}) has headers or auth, but a command has none. Use env.")
        return
    if server.env or server.cwd:
        raise UsageError(f"McpServer(name={server.name!r}) has env or cwd, but a server on the network has none. Use headers.")
    try:
        parts = urlsplit(server.url)
        usable = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise _invalid_option(server, "url", "an address such as https://host/mcp")
    check_headers(server.name, server.headers)
    _check_auth(server)


def _check_auth(server: McpServer) -> None:
    if not isinstance(server.auth, OAuth | None):
        raise _invalid_option(server, "auth", "OAuth(...)")
    if server.auth is not None and any(name.lower() == "authorization" for name in server.headers):
        raise UsageError(f"McpServer(name={server.name!r}) has auth and the header Authorization. Remove one of them.")
    if server.auth is None:
        return
    try:
        private = is_private_connection(server.url.partition("#")[0]) and "@" not in server.url.partition("?")[0]
    except NotPlain:
        private = False
    if not private:
        raise UsageError(f"McpServer(name={server.name!r}) has auth, so that its url must begin with https, and have no user part.")
    server.auth.bind(server.url.partition("#")[0])


def _check_tool_settings(server: McpServer) -> None:
    if not isinstance(server.effects, Mapping) or any(effect not in get_args(Effect) for effect in server.effects.values()):
        raise _invalid_option(server, "effects", "a dict from names of tools to 'none', 'idempotent' or 'once'")
    if not isinstance(server.options, Mapping) or not all(isinstance(one, Mapping) for one in server.options.values()):
        raise _invalid_option(server, "options", "a dict from names of tools to dicts of options")
    for tool, options in server.options.items():
        if "effect" in options:
            raise UsageError(f"McpServer(options={{{tool!r}: ...}}) sets an effect. Write effects={{{tool!r}: {options['effect']!r}}}.")
        refuse_unknown(f"McpServer(options={{{tool!r}: ...}})", options, ATTRIBUTE_OPTIONS)


def _invalid_option(server: McpServer, option: str, wanted: str) -> UsageError:
    given = getattr(server, option)
    value = repr(shown_word(given)) if option == "url" else shown(given)
    return UsageError(f"McpServer({option}={value}) of {server.name!r}: it must be {wanted}.")
