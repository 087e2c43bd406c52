"""Streamable HTTP for `callgate serve --http`: who may use it, where it listens, and how a client connects."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from callgate._unusable_paths import displayed, read_regular_file
from callgate.cli._console import say
from callgate.cli._serve_reload import ConfiguredAccess
from callgate.cli._serve_token import new_token
from callgate.errors import UsageError
from callgate.gateway import LOCAL, Gateway, Principal
from callgate.gateway._access.narrowed_access import NarrowedTokens
from callgate.gateway._config.config_changes import keeps_access
from callgate.gateway.config import GatewayConfig, HttpConfig, JwtConfig
from callgate.gateway.tokens import Anonymous, AnyTokens, Authenticator, CurrentTokens, StaticTokens

if TYPE_CHECKING:
    from callgate.gateway._http import HttpApp
    from callgate.gateway._http.resource_server import ResourceServer
    from callgate.gateway.jwt_tokens import JwtTokens

__all__ = ["Access", "FirstAccess", "checked_issuer", "create_app", "listening", "say_how_to_connect"]

_NEEDED = ("h11", "uvicorn")


class FirstAccess(Struct, frozen=True, kw_only=True):
    """Who may use the gateway at its start."""

    configured: ConfiguredAccess
    tokens: CurrentTokens
    """The tokens that are accepted, which a reload of the configuration replaces."""
    made_token: str
    """The token that was made because no principal is configured; empty if one is."""

    @classmethod
    def of(cls, config: GatewayConfig) -> FirstAccess:
        """Return the access that a configuration gives.

        Raises:
            UsageError: A library that HTTP needs is missing, or a key cannot be used.
        """
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise UsageError(f"HTTP needs {' and '.join(missing)}. Install them with: python -m pip install 'callgate[gateway]'")
        key = _public_key(config.jwt)
        known = _create_authenticator(config, key)
        made_token = new_token() if known is None else ""
        known = StaticTokens({made_token: LOCAL}) if known is None else known
        return cls(configured=ConfiguredAccess(config=config, known=known, key=key), tokens=CurrentTokens(known), made_token=made_token)


class Access:
    """Who may use the gateway, which a reload of the configuration changes. Implements `ChangingAccess`."""

    def __init__(self, first: FirstAccess, gateway: Gateway, app: HttpApp) -> None:
        self._tokens = first.tokens
        self._gateway = gateway
        self._app = app
        self._counting = [first.configured]

    def read(self, config: GatewayConfig) -> ConfiguredAccess:
        key = _public_key(config.jwt)
        own = _create_authenticator(config, key)
        known = next((one.known for one in self._counting if one.key == key and _has_same_access(one.config, config)), own)
        if known is None or (own is None and any(one.config.principals for one in self._counting)):
            raise UsageError("No principal is left, so that nobody could use the gateway. Leave one, or restart the gateway.")
        return ConfiguredAccess(config=config, known=known, key=key)

    async def use(self, in_use: ConfiguredAccess, *others: ConfiguredAccess) -> None:
        counting, before = [in_use, *others], self._counting
        self._counting = counting
        kinds = tuple(dict.fromkeys(one.known for one in counting))
        if kinds == tuple(dict.fromkeys(one.known for one in before)):
            return
        self._tokens.replace(kinds[0] if len(kinds) == 1 else NarrowedTokens(*kinds))
        self._gateway.use_principals(*([known.principal for known in one.config.principals] for one in counting))
        old = before[0].config
        await self._app.end_principals(lambda name: not all(keeps_access(name, old, one.config) for one in counting))


def _has_same_access(one: GatewayConfig, other: GatewayConfig) -> bool:
    return (one.principals, one.jwt) == (other.principals, other.jwt)


def _public_key(config: JwtConfig | None) -> str:
    """Return the issuer's public key; empty if its keys are fetched."""
    return read_regular_file(config.key_file).decode("utf-8", "replace") if config is not None and config.key_file else ""


def _create_authenticator(config: GatewayConfig, key: str) -> Authenticator | None:
    """Return the authenticator of the configured principals; None if none is configured."""
    if config.http is not None and config.http.anonymous:
        return Anonymous(LOCAL)
    digests = {digest: one.principal for one in config.principals for digest in one.token_sha256}
    issued = [_create_jwt_tokens(config.jwt, key, [one.principal for one in config.principals])] if config.jwt is not None else []
    return AnyTokens(StaticTokens({}, digests=digests), *issued) if digests or issued else None


def checked_issuer(config: JwtConfig) -> JwtTokens:
    """Return the checker of the configured issuer's tokens, without principals.

    Raises:
        UsageError: The key cannot be used.
    """
    return _create_jwt_tokens(config, _public_key(config))


def _create_jwt_tokens(config: JwtConfig, key: str, principals: Sequence[Principal] = ()) -> JwtTokens:
    from callgate.gateway.jwt_tokens import JwtTokens, KeyRefused

    try:
        return JwtTokens(
            issuer=config.issuer,
            audience=config.audience,
            jwks_url=config.jwks_url,
            key=key,
            algorithms=config.algorithms,
            leeway_s=config.leeway_s,
            principal_claim=config.principal_claim,
            principals=principals,
        )
    except KeyRefused as refused:
        raise UsageError(f"[jwt] key_file {displayed(Path(config.key_file))} {refused.reason}") from refused


@asynccontextmanager
async def listening(app: HttpApp, config: GatewayConfig) -> AsyncIterator[str]:
    """Serve while the block runs; yield the address for clients.

    Raises:
        UsageError: The address cannot be used.
    """
    from callgate.gateway._http import HttpServer

    http = config.http or HttpConfig()
    async with AsyncExitStack() as stack:
        try:
            server = await stack.enter_async_context(HttpServer(app, http.host, http.port))
        except OSError as error:
            raise UsageError(
                f"The gateway cannot listen on {http.host}:{http.port}: {error.strerror}. Give another address with --http HOST:PORT;"
                " port 0 is any free one."
            ) from error
        host = f"[{http.host}]" if ":" in http.host else http.host
        yield f"http://{host}:{server.port}{http.path}"


def create_app(gateway: Gateway, config: GatewayConfig, tokens: Authenticator) -> HttpApp:
    """Return the application that serves a gateway."""
    from callgate.gateway._access.tool_scopes import ToolScopes
    from callgate.gateway._http import HttpApp

    http, jwt = config.http or HttpConfig(), config.jwt
    app = HttpApp(
        gateway,
        tokens,
        metrics_readers=http.metrics,
        path=http.path,
        hosts=(*http.hosts, *_own_names(gateway)),
        origins=http.origins,
        limits=http.limits,
        on_refused=gateway.observed.count_refusal,
        resource=_create_resource_server(gateway, http, jwt),
        tool_scopes=ToolScopes(jwt.tool_scopes if jwt is not None else {}, gateway.engine.tools).of,
    )
    gateway.observed.connections = app.connection_counts
    return app


def _create_resource_server(gateway: Gateway, http: HttpConfig, jwt: JwtConfig | None) -> ResourceServer | None:
    """Return the OAuth metadata for clients; None if none is configured."""
    from callgate.gateway._http.resource_server import ResourceServer

    if jwt is None or not jwt.resource:
        return None
    return ResourceServer(jwt.resource, [jwt.issuer], scopes=jwt.scopes, name=gateway.name, documentation=jwt.documentation, path=http.path)


def _own_names(gateway: Gateway) -> list[str]:
    """Return the name by which other gateways on the journal reach this one."""
    return [urlsplit(gateway.replicas.url).netloc] if gateway.replicas.url else []


def say_how_to_connect(name: str, url: str, token: str) -> None:
    """Print the command by which a client connects, with the token if it was made now."""
    if not token:
        return
    short = "".join(char if char.isalnum() or char in "_-" else "-" for char in name)
    header = shlex.quote(f"Authorization: Bearer {token}")
    say("No principal is configured, so one token was made for this start:", "cyan")
    say(f"  {token}")
    say("Connect a client, such as Claude Code:", "cyan")
    say(f"  claude mcp add --transport http {short} {url} --header {header}")
