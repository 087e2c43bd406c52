"""Read the configuration of a gateway from a file such as `gate.toml`.

Strict: an unknown key, a value of a wrong type and a variable without a value are refused, each with its place. A token is never in the
file, because the file is shared and kept; its digest is, or the name of a variable. Opens and starts nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, structs

from callgate._terminal_text import one_line
from callgate._unusable_paths import displayed, expanded
from callgate.errors import UsageError
from callgate.gateway._config.jwt_table import read_jwt
from callgate.gateway._config.listen_address import DEFAULT_HOST, DEFAULT_PORT, is_loopback, read_listen_address
from callgate.gateway._config.secret_values import SHORTEST_SECRET
from callgate.gateway._config.server_tables import read_plugins, read_servers
from callgate.gateway._config.toml_table import TomlTable, read_toml
from callgate.gateway._http_limits import HttpLimits
from callgate.gateway.config import GatewayConfig, HttpConfig, KnownPrincipal, ReplicaConfig, TasksConfig
from callgate.gateway.principals import Principal
from callgate.mcp import ConfiguredServer, configured_servers
from callgate.mcp.config_files import accepted_file

__all__ = [
    "SHORTEST_TOKEN",
    "GatewayServers",
    "principal_header",
    "read_gateway_config",
    "read_gateway_servers",
    "refuse_open",
    "token_digest",
]

SHORTEST_TOKEN: Final = 20
_SHORTEST_SEAL: Final = 32
_USE: Final = "the configuration of a gateway"
_MISSING: Final = "Write one, give another with --config, or give servers with --mcp."
_KEYS: Final = (
    *(
        "name",
        "instructions",
        "journal",
        "rules",
        "timeout_s",
        "tools",
        "plugins",
        "mcp_files",
        "accepted",
        "redact_env",
        "workspace",
        "undo",
    ),
    *("servers", "http", "principals", "jwt", "replicas", "tasks"),
)
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,126}[^\s\x00-\x1f\x7f])?")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")


def read_gateway_config(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> GatewayConfig:
    """Return the configuration of a file.

    Args:
        path: The file. Relative paths in it begin in its folder.
        environment: The environment variables. Default: those of this process.

    Raises:
        UsageError: The file cannot be read, or something in it is wrong; the message names file, key and value.
    """
    root = read_toml(path, _USE, _MISSING, environment)
    root.refuse_unknown(_KEYS)
    file, accepted = root.file, _accepted(root, path)
    config = GatewayConfig(
        name=_name(root),
        instructions=root.text("instructions"),
        journal=_journal(root),
        rules=tuple(str(file.path(one)) for one in root.texts("rules")),
        files=(os.path.abspath(expanded(path)), str(accepted), *_mcp_files(root)),
        timeout_s=root.seconds("timeout_s"),
        tools=tuple(_tool_source(root, one) for one in root.texts("tools")),
        folder=str(file.folder),
        plugins=tuple(read_plugins(root)),
        servers=_servers(root, _known(root, accepted)),
        secrets=tuple(_secrets(root)),
        workspace=_workspace(root),
        names_workspace="workspace" in root,
        undo=root.flag("undo", default=False) if "undo" in root else None,
        http=_http(root),
        principals=tuple(_principals(root)),
        jwt=read_jwt(root),
        replicas=_replicas(root),
        tasks=_tasks(root),
    )
    refuse_open(config, root.file.name)
    return config


class GatewayServers(Struct, frozen=True):
    """The servers that are in a gateway's file itself, and what belongs to them."""

    servers: tuple[ConfiguredServer, ...]
    accepted: Path
    """The file of their accepted tools."""
    mcp_files: tuple[str, ...]
    """Other files, whose servers the gateway has too."""


def read_gateway_servers(path: str | os.PathLike[str]) -> GatewayServers:
    """Return the servers that are in the file itself. Nothing else is read.

    Raises:
        UsageError: The file cannot be read, or a server in it is wrong.
    """
    root = read_toml(path, _USE, _MISSING)
    root.refuse_unknown(_KEYS)
    accepted = _accepted(root, path)
    mcp_files = tuple(str(root.file.path(one)) for one in root.texts("mcp_files"))
    return GatewayServers(tuple(read_servers(root, _known(root, accepted))), accepted, mcp_files)


def _mcp_files(root: TomlTable) -> Iterator[str]:
    for text in root.texts("mcp_files"):
        path = root.file.path(text)
        yield from (str(path), str(accepted_file(path)))


def _accepted(root: TomlTable, path: str | os.PathLike[str]) -> Path:
    """Return the file of accepted tools, which need not exist."""
    return root.file.path(root.text("accepted")) if "accepted" in root else root.file.folder / accepted_file(path).name


def _known(root: TomlTable, accepted: Path) -> Path | None:
    return accepted if "accepted" in root or accepted.exists() else None


def token_digest(token: str) -> str:
    """Return the digest by which a token is known."""
    return hashlib.sha256(token.encode()).hexdigest()


def _name(root: TomlTable) -> str:
    name = root.text("name", "callgate")
    if not name.strip():
        raise root.wrong("name", "is empty", "Write the name that clients are told, or leave it out: it is callgate then.")
    return name


def _journal(root: TomlTable) -> str:
    place = root.text("journal", os.path.join(".callgate", "journal.db"), variables=True)
    if not place:
        raise root.wrong("journal", "is empty", "Write a file or a postgresql:// address, or leave it out.")
    if "\0" in place:
        raise root.wrong(
            "journal", f"is {displayed(place)}, which cannot be a file", "Write the path of a file without control characters."
        )
    return place if place == ":memory:" or "://" in place else str(root.file.path(place))


def _workspace(root: TomlTable) -> str:
    folder = root.file.path(root.text("workspace", ".", variables=True))
    if not folder.is_dir():
        raise root.wrong("workspace", f"is {displayed(folder)}, which is not a folder", "Make it, or name another.")
    return str(folder)


def _tool_source(root: TomlTable, spec: str) -> str:
    """Return a source of tools with the path of its file absolute."""
    place, colon, attribute = spec.rpartition(":")
    place, rest = (place, colon + attribute) if colon and place else (spec, "")
    return f"{root.file.path(place)}{rest}" if place.endswith(".py") else spec


def _secrets(root: TomlTable) -> Iterator[str]:
    for name in root.texts("redact_env"):
        value = root.file.environment.get(name)
        if value is None:
            raise root.wrong(
                "redact_env", f"names the environment variable {one_line(name, 80)}, which is not set", "Set it, or remove it here."
            )
        if len(value) < SHORTEST_SECRET:
            fact = f"names {one_line(name, 80)}, whose value has {len(value)} characters; at least {SHORTEST_SECRET} are needed"
            raise root.wrong("redact_env", fact, "A shorter one occurs in ordinary text. Take a longer secret, or remove it here.")
        yield value


# MCP servers


def _servers(root: TomlTable, accepted: Path | None) -> tuple[ConfiguredServer, ...]:
    found: list[ConfiguredServer] = []
    where: dict[str, str] = {}
    own = [(one, f"{root.file.name}: [servers.{one.name}]") for one in read_servers(root, accepted)]
    for one, place in (*own, *_servers_of_files(root)):
        if one.server.name in where:
            name = one.server.name
            raise UsageError(f"Two MCP servers are named '{name}': in {where[name]} and in {place}. Rename or remove one of them.")
        where[one.server.name] = place
        found.append(one)
    return tuple(found)


def _servers_of_files(root: TomlTable) -> Iterator[tuple[ConfiguredServer, str]]:
    for text in root.texts("mcp_files"):
        path = root.file.path(text)
        for one in configured_servers(path):
            yield one, displayed(path)


# The network


def _http(root: TomlTable) -> HttpConfig | None:
    table = root.table("http")
    if table is None:
        return None
    table.refuse_unknown(("listen", "path", "hosts", "origins", "anonymous", "metrics", "limits"))
    listen = table.text("listen", f"{DEFAULT_HOST}:{DEFAULT_PORT}", variables=True)
    host, port = read_listen_address(listen, f"{root.file.name}: {table.place('listen')}")
    path = table.text("path", "/mcp")
    if not re.fullmatch(r"/[A-Za-z0-9_./~-]*", path):
        raise table.wrong("path", f"is {one_line(path, 80)!r}; it must begin with '/', as in the address of a page", 'Write path = "/mcp".')
    if path in ("/health", "/metrics") or path.startswith("/.well-known/"):
        raise table.wrong("path", f"is {path!r}, where the gateway serves something else", 'Write path = "/mcp".')
    origins = table.texts("origins", variables=True)
    for origin in origins:
        if not re.fullmatch(r"https?://[^/?#\s]+", origin):
            raise table.wrong(
                "origins", f"has {one_line(origin, 80)!r}, which is not an origin", 'Write such as "https://app.example:8443".'
            )
    hosts = table.texts("hosts", variables=True)
    for name in hosts:
        if not name or "/" in name or name != name.strip():
            raise table.wrong("hosts", f"has {one_line(name, 80)!r}, which is not a host", 'Write such as "gate.example.com".')
        if "*" in name:
            raise table.wrong("hosts", f"has {one_line(name, 80)!r}; each name has to be given whole", 'Write such as "gate.example.com".')
    return HttpConfig(
        host=host,
        port=port,
        path=path,
        hosts=hosts,
        origins=origins,
        anonymous=table.flag("anonymous", False),
        metrics=table.texts("metrics", HttpConfig().metrics),
        limits=_http_limits(table),
    )


def _http_limits(http: TomlTable) -> HttpLimits:
    table = http.table("limits")
    if table is None:
        return HttpLimits()
    defaults = structs.asdict(HttpLimits())
    table.refuse_unknown(defaults)
    given: dict[str, Any] = {
        key: table.count(key, default) if isinstance(default := defaults[key], int) else table.seconds(key) for key in table.entries
    }
    return HttpLimits(**given)


def _tasks(root: TomlTable) -> TasksConfig:
    table = root.table("tasks")
    if table is None:
        return TasksConfig()
    table.refuse_unknown(("enabled", "after_s", "ttl_s", "most", "most_bytes"))
    usual = TasksConfig()
    most = table.count("most", usual.most)
    return TasksConfig(
        after_s=table.seconds("after_s") or usual.after_s,
        ttl_s=table.seconds("ttl_s") or usual.ttl_s,
        most=most if table.flag("enabled", True) else 0,
        most_bytes=table.count("most_bytes", usual.most_bytes),
    )


def refuse_open(config: GatewayConfig, owner: str) -> None:
    """Refuse to listen on the network without knowing who calls, and by which name.

    Args:
        owner: What says where to listen: the file or the option.

    Raises:
        UsageError: Other machines could use the gateway without a token, or by any name.
    """
    http = config.http
    if http is not None and http.anonymous and (config.jwt or config.principals):
        what = "[jwt]" if config.jwt else "[principals]"
        raise UsageError(f"{owner}: anonymous = true in [http] lets everybody in, so {what} would have no effect. Remove one of them.")
    if http is None or is_loopback(http.host):
        return
    where = f"{owner}: the gateway is to listen on {http.host}:{http.port}, which other machines can reach"
    if http.anonymous:
        raise UsageError(f"{where}, but anonymous = true in [http] is only for {DEFAULT_HOST}. Remove it, and give each principal a token.")
    if not (config.jwt or any(one.token_sha256 for one in config.principals)):
        raise UsageError(
            f"{where}, but nobody has a token. Write a principal ([principals.NAME], from `callgate serve token NAME`) or [jwt] to the"
            f" configuration, or listen on {DEFAULT_HOST}."
        )
    if not (http.hosts or (config.jwt and config.jwt.resource)):
        raise UsageError(
            f"{where}, but `hosts` in [http] is empty. Write the names by which clients call this gateway, such as"
            ' hosts = ["gate.example.com"]; requests for other names are refused.'
        )


def principal_header(name: str) -> str:
    """Return the header of a principal's table.

    Raises:
        UsageError: Nobody can have this name.
    """
    if not _NAME.fullmatch(name) or '"' in name or "\\" in name:
        raise UsageError(f"A principal cannot be named '{one_line(name, 80)}'. Take 1 to 128 visible characters without quotes.")
    return f"[principals.{name}]" if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'[principals."{name}"]'


# Principals


def _principals(root: TomlTable) -> Iterator[KnownPrincipal]:
    owners: dict[str, str] = {}
    for name, table in root.tables("principals").items():
        one = _principal(root, name, table)
        for digest in one.token_sha256:
            if digest in owners:
                raise UsageError(
                    f"{root.file.name}: {table.header} has the token of {owners[digest]} too. Give each principal a token of its own:"
                    f" callgate serve token {name}"
                )
            owners[digest] = table.header
        yield one


def _principal(root: TomlTable, name: str, table: TomlTable) -> KnownPrincipal:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{root.file.name}: {table.header} cannot name a principal. Take 1 to 128 visible characters.")
    for key in ("token", "secret", "password", "key"):
        if key in table:
            raise table.wrong(
                key,
                "would be a secret in this file, which is shared and kept in backups; its value is not shown",
                f"Run `callgate serve token {name}`, and write the token_sha256 that it prints, or token_env with the name of a variable.",
            )
    table.refuse_unknown(("token_env", "token_sha256", "role", "tools", "servers", "parallel", "queued", "pending", "approves"))
    digests = (*_digests(table), *(_digest_of_variable(table, variable) for variable in table.texts("token_env")))
    if not digests and "jwt" not in root:
        raise UsageError(
            f"{root.file.name}: {table.header} has neither token_env nor token_sha256, so nobody can be this principal."
            f" Make a token: callgate serve token {name}"
        )
    defaults = Principal(name=name)
    principal = Principal(
        name=name,
        role=cast("Any", table.choice("role", ("client", "operator"))),
        tools=table.texts("tools", defaults.tools),
        servers=table.texts("servers") if "servers" in table else None,
        parallel=table.count("parallel", defaults.parallel),
        queued=table.count("queued", defaults.queued),
        pending=table.count("pending", defaults.pending),
        approves=table.flag("approves", defaults.approves),
    )
    return KnownPrincipal(principal=principal, token_sha256=digests)


def _digests(table: TomlTable) -> Iterator[str]:
    for digest in table.texts("token_sha256", variables=True):
        if not _DIGEST.fullmatch(digest):
            fact = f"has {len(digest)} characters, and is not a SHA-256 digest of 64 hexadecimal digits; its value is not shown"
            raise table.wrong("token_sha256", fact, f"`callgate serve token {table.keys[-1]}` prints a token with its digest.")
        yield digest.lower()


def _digest_of_variable(table: TomlTable, variable: str) -> str:
    token = table.file.environment.get(variable, "")
    if not token:
        raise table.wrong(
            "token_env", f"names the environment variable {one_line(variable, 80)}, which is not set", "Set it before the start."
        )
    if len(token) < SHORTEST_TOKEN or token != token.strip() or not token.isascii():
        what = f"names {one_line(variable, 80)}, whose value is not a token"
        fact = f"{what}: at least {SHORTEST_TOKEN} ASCII characters without spaces are needed"
        raise table.wrong("token_env", fact, f"Make one: callgate serve token {table.keys[-1]}")
    return token_digest(token)


def _replicas(root: TomlTable) -> ReplicaConfig | None:
    table = root.table("replicas")
    if table is None:
        return None
    table.refuse_unknown(("name", "url", "secret_env"))
    for key in ("name", "url", "secret_env"):
        if not table.text(key):
            raise table.wrong(key, "is missing", "Each replica needs a name, a url where the others reach it, and the common secret.")
    if not _journal(root).startswith(("postgresql://", "postgres://")):
        raise table.wrong("name", "is given, but journal is not a postgresql:// address", "Replicas share a journal on a server. Write it.")
    variable = table.text("secret_env")
    secret = table.file.environment.get(variable, "")
    if len(secret) < _SHORTEST_SEAL:
        fact = f"names {one_line(variable, 80)}, whose value has {len(secret)} characters; at least {_SHORTEST_SEAL} are needed"
        raise table.wrong("secret_env", fact if secret else f"names {one_line(variable, 80)}, which is not set", "Set it before the start.")
    url = table.text("url", variables=True)
    if not re.fullmatch(r"https?://[^/?#\s]+/?", url):
        raise table.wrong(
            "url", f"is {one_line(url, 200)!r}; it must be an address without a path", 'Write such as "http://10.0.0.3:8765".'
        )
    return ReplicaConfig(name=table.text("name", variables=True), url=url.rstrip("/"), secret=secret.encode())
