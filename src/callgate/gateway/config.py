"""The configuration of a gateway, as values. `config_file` reads them from a file; nothing is opened or started here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from callgate._option_checks import NamedStruct
from callgate.gateway._http_limits import HttpLimits
from callgate.gateway.principals import EVERY, Principal
from callgate.mcp import ConfiguredServer
from callgate.plugins import Plugin

__all__ = ["GatewayConfig", "HttpConfig", "JwtConfig", "KnownPrincipal", "ReplicaConfig", "TasksConfig"]


class HttpConfig(NamedStruct, frozen=True, kw_only=True):
    """Where the gateway listens, and for whom."""

    host: str = "127.0.0.1"
    port: int = 8765
    """0: any free port."""
    path: str = "/mcp"
    hosts: tuple[str, ...] = ()
    """The names that clients may use in the `Host` header, in addition to those of this machine's loopback."""
    origins: tuple[str, ...] = ()
    """The origins of web pages that may use the gateway."""
    anonymous: bool = False
    """Whether everybody who reaches the gateway may use it without a token; only on the loopback interface."""
    metrics: tuple[str, ...] = (EVERY,)
    """The principals that may read `/metrics`, as glob patterns of their names."""
    limits: HttpLimits = HttpLimits()
    """What one client, and all clients together, may use."""


class KnownPrincipal(NamedStruct, frozen=True, kw_only=True):
    """A principal, and the tokens by which it is known."""

    principal: Principal
    token_sha256: tuple[str, ...] = ()
    """The digests of its tokens, in hexadecimal. None: it is known by the claim of a JWT only."""


class JwtConfig(NamedStruct, frozen=True, kw_only=True):
    """How JSON Web Tokens are checked, and which claims say who it is."""

    issuer: str
    audience: tuple[str, ...]
    jwks_url: str = ""
    """The address of the issuer's keys. If this and `key_file` are empty, the issuer's metadata have it."""
    key_file: str = ""
    """A file with the public key in PEM form, instead of `jwks_url`."""
    algorithms: tuple[str, ...] = ("RS256",)
    principal_claim: str = "sub"
    """The claim with the principal's name."""
    leeway_s: float = 30.0
    """Seconds by which the clocks of the issuer and the gateway may differ."""
    resource: str = ""
    """The address at which clients call this gateway. If given, clients are told where to get their tokens (RFC 9728)."""
    scopes: tuple[str, ...] = ()
    """The scopes that a token needs for every request."""
    tool_scopes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The scopes that a token needs to call a tool, by glob patterns of tools' names."""
    documentation: str = ""
    """The address of a page about this gateway, for developers of clients."""


class ReplicaConfig(NamedStruct, frozen=True, kw_only=True):
    """One of several gateways on the same journal."""

    name: str
    url: str
    """Where the other replicas reach this one."""
    secret: bytes
    """The same for all replicas: what one has sealed, another can open."""

    def __repr__(self) -> str:
        return f"ReplicaConfig(name={self.name!r}, url={self.url!r})"


class TasksConfig(NamedStruct, frozen=True, kw_only=True):
    """When calls go on as tasks of clients that know the tasks extension of MCP."""

    after_s: float = 10.0
    """Seconds after which a call becomes a task."""
    ttl_s: float = 3_600.0
    """Seconds for which a task exists."""
    most: int = 1_000
    """How many tasks are kept in memory; 0: there are none."""
    most_bytes: int = 67_108_864
    """How large the results of tasks in memory may be together."""


class GatewayConfig(NamedStruct, frozen=True, kw_only=True):
    """Everything that `gate.toml` says."""

    name: str = "callgate"
    """The name that clients show."""
    instructions: str = ""
    """What clients tell their model about this gateway."""
    journal: str = ""
    """The file or address of the journal. Empty: `.callgate/journal.db` in the current folder."""
    rules: tuple[str, ...] = ()
    """Files of rules, asked in this order."""
    files: tuple[str, ...] = ()
    """The file itself, `mcp_files`, and the files of accepted tools of both, which need not exist."""
    timeout_s: float | None = None
    """Seconds for a whole call. None: the engine's default."""
    tools: tuple[str, ...] = ()
    """Sources of Python tools, as `callgate run --tools` takes them."""
    folder: str = ""
    """The folder of the file, where modules with tools are found. Empty: the current one."""
    plugins: tuple[Plugin, ...] = ()
    servers: tuple[ConfiguredServer, ...] = ()
    """The MCP servers, also those of `mcp_files`, and those that are disabled."""
    secrets: tuple[str, ...] = ()
    """Values that must not be recorded or sent to a client."""
    workspace: str = "."
    names_workspace: bool = True
    """Whether the workspace was named; False: it is the folder of the file."""
    undo: bool | None = None
    """Whether what calls change in the workspace is kept, so that it can be undone. None: if there are Python tools."""
    http: HttpConfig | None = None
    principals: tuple[KnownPrincipal, ...] = ()
    jwt: JwtConfig | None = None
    replicas: ReplicaConfig | None = None
    tasks: TasksConfig = TasksConfig()

    def __repr__(self) -> str:
        """Return the name and the servers; the rest may hold secrets."""
        return f"GatewayConfig(name={self.name!r}, servers={[one.name for one in self.servers]!r})"
