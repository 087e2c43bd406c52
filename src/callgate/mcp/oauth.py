"""`OAuth`: access tokens for MCP servers on the network, from the user's authorization.

Nothing happens until a server refuses a request for want of authorization. Then the user is asked once, in a browser that the host opens,
and the request is sent again with the token. Tokens are kept in memory, renewed before they expire, and sent to the server that they were
issued for and to no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from callgate._option_checks import by_name, shown
from callgate.errors import UsageError
from callgate.mcp._connection import NotSent
from callgate.mcp._oauth_grants import AccessToken, Grant, OAuthClient, ask_user, register, registered_client, request_token
from callgate.mcp._oauth_http import OAuthHttp
from callgate.mcp._oauth_metadata import (
    AuthorizationServer,
    Challenge,
    ProtectedResource,
    Untrusted,
    authorization_server,
    authorization_server_addresses,
    challenge_of,
    is_on_this_machine,
    protected_resource,
    protected_resource_addresses,
)
from callgate.models._credential_redaction import SecretRedactor

__all__ = ["OAuth"]

_OFFLINE = "offline_access"


class OAuth:
    """The authorization of one MCP server with OAuth 2.1: `mcp(url, auth=OAuth(open_page=..., redirect_uri=...))`.

    Keeps the token, so it belongs to one server and to one engine at a time.

    Args:
        open_page: Given an address, has the user open it in a browser, and returns the whole address to which the browser is redirected in
            the end, which begins with `redirect_uri`. The server's `start_timeout_s` must leave time for that.
        redirect_uri: Where the authorization server sends the user: usually a port of this machine, `http://127.0.0.1:PORT/callback`.
        client_name: The name that the user sees.
        client_id: The id of a client that was registered by hand; if empty, the client registers itself.
        client_secret: Its secret, if it has one.
        issuer: The authorization server at which `client_id` is registered. Required with a secret, which no other server may see.
        client_metadata_url: The `https` address of the client's metadata, which some authorization servers take as its id.

    Raises:
        UsageError: An option cannot be used.
    """

    @by_name
    def __init__(
        self,
        *,
        open_page: Callable[[str], Awaitable[str]],
        redirect_uri: str,
        client_name: str = "callgate",
        client_id: str = "",
        client_secret: str = "",
        issuer: str = "",
        client_metadata_url: str = "",
    ) -> None:
        if not callable(open_page):
            raise UsageError(f"OAuth(open_page={shown(open_page)}): it must be an async function.")
        if not urlsplit(redirect_uri).scheme:
            raise UsageError(f"OAuth(redirect_uri={shown(redirect_uri)}): it must be an address, as in http://127.0.0.1:8400/callback.")
        if client_secret and not (client_id and issuer):
            raise UsageError("OAuth(client_secret=...) needs the client_id, and the issuer that may see the secret.")
        self._open_page = open_page
        self._redirect_uri = redirect_uri
        self._client_name = client_name
        self._client_id = client_id
        self._client_secret = client_secret
        self._issuer = issuer
        self._client_metadata_url = client_metadata_url
        self._clients: dict[str, OAuthClient] = {}
        """The registered clients by issuer."""
        self._scopes: tuple[str, ...] = ()
        """All scopes that were asked for."""
        self._grant: Grant | None = None
        self._token: AccessToken | None = None
        self._accepted = False
        """Whether the server has accepted the token at least once."""
        self._local = False
        self._given_up = ""
        """Why the user is not asked any more."""
        self._lock = asyncio.Lock()

    async def access_token(self) -> str:
        """Return the token to send, renewed if it has expired; empty if there is none."""
        if self._token is not None and self._token.expires <= time.monotonic():
            async with self._lock:
                if self._token is not None and self._token.expires <= time.monotonic():
                    async with OAuthHttp(local=self._local) as http:
                        self._token = await self._renewed(http)
        return self._token.access if self._token is not None else ""

    def refused(self, status: int, header: str, used: str) -> Challenge | None:
        """Return what to authorize after a response; None if the response stands.

        A token that was refused although it is new, and scopes that were granted already, do not get better by asking the user again.

        Args:
            header: The response's `WWW-Authenticate`.
            used: The token that was sent with the request.
        """
        challenge = challenge_of(status, header)
        current = self._token is not None and used == self._token.access
        if challenge is None:
            self._accepted = self._accepted or current
        elif current and (set(challenge.scopes) <= set(self._scopes) if status == 403 else not self._accepted):
            return None
        return challenge

    async def authorize(self, label: str, url: str, challenge: Challenge, used: str) -> None:
        """Get a token for the server at `url`, unless another request has just done so.

        Args:
            label: The server's name, for errors.
            used: The token that the server has refused.

        Raises:
            NotSent: There is no token.
        """
        async with self._lock:
            if self._token is not None and self._token.access != used:
                return
            try:
                if self._given_up:
                    raise Untrusted(f"{self._given_up}. The user is not asked again; make a new OAuth for that")
                self._local = is_on_this_machine(url)
                async with OAuthHttp(local=self._local) as http:
                    self._token = await self._new_token(http, url, challenge)
            except Untrusted as error:
                text = f"{label} cannot be asked: its authorization has failed, because {error}."
                raise NotSent(text, code="not_authorized", retryable=False) from error
            self._accepted = False

    async def _new_token(self, http: OAuthHttp, url: str, challenge: Challenge) -> AccessToken:
        resource = protected_resource(await http.first_document(protected_resource_addresses(url, challenge)), url)
        issuer = self._chosen_issuer(resource)
        server = authorization_server(await http.first_document(authorization_server_addresses(issuer)), issuer)
        scopes = _scopes(challenge, resource, server)
        if self._grant is not None and self._grant.server.issuer == issuer:
            scopes = tuple(dict.fromkeys((*self._scopes, *scopes)))
        client = await self._client(http, server, scopes)
        self._grant = Grant(server=server, client=client, resource=resource.resource)
        self._scopes = scopes
        try:
            return await ask_user(http, self._grant, self._redirect_uri, scopes, self._open_page)
        except Untrusted as error:  # a server that cannot be started is started again and again
            self._given_up = str(error)
            raise

    def _chosen_issuer(self, resource: ProtectedResource) -> str:
        if self._issuer and self._issuer not in resource.issuers:
            raise Untrusted(f"it wants tokens of {', '.join(resource.issuers)[:300]}, and the client is registered at {self._issuer}")
        return self._issuer or resource.issuers[0]

    async def _client(self, http: OAuthHttp, server: AuthorizationServer, scopes: tuple[str, ...]) -> OAuthClient:
        if self._client_id:
            return registered_client(server, self._client_id, self._client_secret)
        if self._client_metadata_url and server.takes_metadata_urls:
            return OAuthClient(client_id=self._client_metadata_url)
        if server.issuer not in self._clients:
            self._clients[server.issuer] = await register(http, server, self._client_name, self._redirect_uri, scopes)
        return self._clients[server.issuer]

    async def _renewed(self, http: OAuthHttp) -> AccessToken | None:
        """Return a new token without asking the user; None if that cannot be done."""
        if self._token is None or self._grant is None or not self._token.refresh:
            return None
        try:
            return await request_token(http, self._grant, {"grant_type": "refresh_token", "refresh_token": self._token.refresh})
        except Untrusted:
            return None

    def redact(self, text: str) -> str:
        """Return the text without the tokens that are in use."""
        secrets = () if self._token is None else (self._token.access, self._token.refresh)
        return SecretRedactor(secrets).redact(text)

    def __repr__(self) -> str:
        """Return the address only: the rest may be secret."""
        return f"OAuth(redirect_uri={self._redirect_uri!r})"


def _scopes(challenge: Challenge, resource: ProtectedResource, server: AuthorizationServer) -> tuple[str, ...]:
    """Return the scopes to ask for: those of the challenge, else all of the server's; and the one for tokens that can be renewed."""
    wanted = challenge.scopes or resource.scopes
    return (*wanted, _OFFLINE) if wanted and _OFFLINE in server.scopes and _OFFLINE not in wanted else wanted
