"""`OAuth`: access tokens for MCP servers on the network, from the user's authorization.

Nothing happens until a server refuses a request that is not authorized. Then the user is asked once, in a browser that the host opens,
and the request is sent again with the token. Tokens are kept in memory, renewed before they expire or when they are refused, and
sent to the server that they were issued for and to no other.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Literal
from urllib.parse import urlsplit

from callgate._option_checks import by_name, shown
from callgate.errors import UsageError
from callgate.mcp._connection import NotSent
from callgate.mcp._oauth_addresses import AllowedAddresses, Unreachable, Untrusted
from callgate.mcp._oauth_grants import AccessToken, Grant, OAuthClient, ask_user, register, registered_client, request_token
from callgate.mcp._oauth_http import AuthorizationRefused, OAuthHttp
from callgate.mcp._oauth_metadata import (
    AuthorizationServer,
    Challenge,
    ProtectedResource,
    authorization_server,
    authorization_server_addresses,
    challenge_of,
    protected_resource,
    protected_resource_addresses,
)
from callgate.models._credential_redaction import SecretRedactor, redact_url

__all__ = ["OAuth"]

_OFFLINE = "offline_access"
_MOST_SCOPE_REQUESTS = 8
"""How often a server may ask for more scopes, so that it cannot keep the user busy."""
_KEPT_SECRETS = 8
_LAST_RENEWAL_S = 2.0
"""How long a renewal may still take when the connection is closed."""


class OAuth:
    """The authorization of one MCP server with OAuth 2.1: `mcp(url, auth=OAuth(open_page=..., redirect_uri=...))`.

    Keeps the token, so it belongs to one server, the first that it is given to, and to one engine at a time. The user is asked once, also
    if the engine starts the server again meanwhile, and has ten minutes.

    Args:
        open_page: Given an address, has the user open it in a browser, and returns the whole address to which the browser is redirected in
            the end, which begins with `redirect_uri`. It is cancelled after ten minutes, and when the engine is closed.
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
        self._url = ""
        """The server to which this belongs; empty until it has one."""
        self._untried: Literal["", "renewed", "granted"] = ""
        """How the token was got, until the server has accepted it."""
        self._scope_requests = 0
        self._secrets: deque[str] = deque(maxlen=_KEPT_SECRETS)
        """The last tokens, which a server may repeat in its errors."""
        self._given_up = ""
        """Why the user is not asked any more."""
        self._lock = asyncio.Lock()
        self._login: asyncio.Task[None] | None = None
        """Gets a token. It outlives the request that began it, so that a page stays open while the server is started again."""
        self._renewal: asyncio.Task[None] | None = None
        """Renews an expired token. It outlives the request that began it: a refresh token may be used up as soon as it was sent."""
        self._page_is_open = False

    def bind(self, url: str) -> None:
        """Make this the authorization of the server at `url`.

        Raises:
            UsageError: It is that of another server, which must not get the same token.
        """
        if self._url and self._url != url:
            raise UsageError(f"One OAuth cannot be used for {redact_url(self._url)} and {redact_url(url)}. Make an OAuth for each server.")
        self._url = url

    @property
    def waits_for(self) -> str:
        """The user's next step, as the end of a sentence; empty if there is none."""
        return "it waits for the user's authorization, for which a page was opened" if self._page_is_open else ""

    async def wait_for_user(self) -> None:
        """Wait until no page is open."""
        while self._page_is_open and self._login is not None:
            await asyncio.wait({self._login})

    async def close(self) -> None:
        """Close the page that is open; keep the token."""
        login, self._login = self._login, None
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            await asyncio.wait({renewal}, timeout=_LAST_RENEWAL_S)
        for task in (login, renewal):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    async def access_token(self, label: str) -> str:
        """Return the token to send, renewed if it has expired; empty if there is none.

        Args:
            label: The server's name, for errors.

        Raises:
            NotSent: The token has expired, and the authorization server cannot be asked.
        """
        if self._has_expired():
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.get_running_loop().create_task(self._renew_expired(), context=Context())
                self._renewal.add_done_callback(
                    lambda renewal: renewal.cancelled() or renewal.exception()
                )  # retrieved here in case no task awaits it
            await _wait_for_login(self._renewal, label, "its token has expired and cannot be renewed: ")
        return self._token.access if self._token is not None else ""

    def challenge_to_answer(self, status: int, header: str, used: str) -> Challenge | None:
        """Return what to authorize after a response; None if the response is final.

        A token that was refused although it is new, and scopes that were granted already, do not get better by asking the user again.

        Args:
            header: The response's `WWW-Authenticate`.
            used: The token that was sent with the request.
        """
        challenge = challenge_of(status, header)
        current = self._token is not None and used == self._token.access
        if challenge is None:
            self._untried = "" if current else self._untried
        elif current and (set(challenge.scopes) <= set(self._scopes) if status == 403 else self._untried == "granted"):
            return None
        return challenge

    async def authorize(self, label: str, challenge: Challenge, used: str) -> None:
        """Get a token for the server, unless another request has just done so or is about to.

        Args:
            label: The server's name, for errors.
            used: The token that the server has refused.

        Raises:
            NotSent: There is no token.
        """
        if self._token is not None and self._token.access != used:
            return
        if self._login is None or self._login.done():
            self._login = asyncio.get_running_loop().create_task(self._get_token(challenge, used), context=Context())
        await _wait_for_login(self._login, label, "its authorization has failed, because ")

    async def _get_token(self, challenge: Challenge, used: str) -> None:
        async with self._lock:
            if self._token is not None and self._token.access != used:
                return
            if self._given_up:
                raise Untrusted(f"{self._given_up}. The user is not asked again; make a new OAuth for that")
            async with self._open_http() as http:
                resource = protected_resource(await http.first_document(protected_resource_addresses(self._url, challenge)), self._url)
                issuer = self._choose_issuer(resource)
                if self._may_be_renewed(challenge, issuer) and await self._renew():
                    return
                self._keep(await self._request_token(http, challenge, resource, issuer), "granted")

    def _may_be_renewed(self, challenge: Challenge, issuer: str) -> bool:
        """Whether a new token of the same grant could satisfy the server."""
        same = self._grant is not None and self._grant.server.issuer == issuer and set(challenge.scopes) <= set(self._scopes)
        return same and self._untried == ""

    def _has_expired(self) -> bool:
        return self._token is not None and self._token.expires <= time.monotonic()

    def _open_http(self) -> OAuthHttp:
        return OAuthHttp(AllowedAddresses(self._url, self._issuer))

    def _keep(self, token: AccessToken | None, untried: Literal["", "renewed", "granted"]) -> None:
        self._token, self._untried = token, untried
        if token is not None:
            self._secrets.extend((token.access, token.refresh))

    async def _request_token(self, http: OAuthHttp, challenge: Challenge, resource: ProtectedResource, issuer: str) -> AccessToken:
        """Ask the user for a token.

        Raises:
            Untrusted: No token was granted. If the user was asked, they are not asked again.
        """
        server = authorization_server(await http.first_document(authorization_server_addresses(issuer)), issuer)
        scopes = _scopes(challenge, resource, server)
        if self._grant is not None and self._grant.server.issuer == issuer:
            scopes = tuple(dict.fromkeys((*self._scopes, *scopes)))
        client = await self._client_for(http, server, scopes)
        if self._token is not None and not set(scopes) <= set(self._scopes):
            self._count_scope_request()
        self._grant = Grant(server=server, client=client, resource=resource.resource)
        self._scopes = scopes
        self._page_is_open = True
        try:
            return await ask_user(http, self._grant, self._redirect_uri, scopes, self._open_page)
        except Untrusted as error:  # a server that cannot be started is started again and again
            self._given_up = str(error)
            raise
        finally:
            self._page_is_open = False

    def _count_scope_request(self) -> None:
        self._scope_requests += 1
        if self._scope_requests > _MOST_SCOPE_REQUESTS:
            raise Untrusted(f"it has asked for more scopes {_MOST_SCOPE_REQUESTS} times, and may not do so again")

    def _choose_issuer(self, resource: ProtectedResource) -> str:
        if self._issuer and self._issuer not in resource.issuers:
            raise Untrusted(f"it wants tokens of {', '.join(resource.issuers)[:300]}, and the client is registered at {self._issuer}")
        return self._issuer or resource.issuers[0]

    async def _client_for(self, http: OAuthHttp, server: AuthorizationServer, scopes: tuple[str, ...]) -> OAuthClient:
        if self._client_id:
            return registered_client(server, self._client_id, self._client_secret)
        if self._client_metadata_url and server.takes_metadata_urls:
            return OAuthClient(client_id=self._client_metadata_url)
        if server.issuer not in self._clients:
            self._clients[server.issuer] = await register(http, server, self._client_name, self._redirect_uri, scopes)
        return self._clients[server.issuer]

    async def _renew_expired(self) -> None:
        async with self._lock:
            if self._has_expired():
                await self._renew()

    async def _renew(self) -> bool:
        """Replace the token without asking the user; forget it if that cannot be done.

        Raises:
            Untrusted: The authorization server has neither renewed the token nor refused to. The token is kept.
        """
        token = None
        if self._token is not None and self._grant is not None and self._token.refresh:
            form = {"grant_type": "refresh_token", "refresh_token": self._token.refresh}
            try:
                async with self._open_http() as http:
                    token = await request_token(http, self._grant, form)
            except AuthorizationRefused:
                self._clients.pop(self._grant.server.issuer, None)  # it may be the client that is not known any more
        self._keep(token, "renewed")
        return token is not None

    def redact(self, text: str) -> str:
        """Return the text without the tokens that are or were in use."""
        return SecretRedactor(self._secrets).redact(text)

    def __repr__(self) -> str:
        """Return the address only: the rest may be secret."""
        return f"OAuth(redirect_uri={self._redirect_uri!r})"


def _scopes(challenge: Challenge, resource: ProtectedResource, server: AuthorizationServer) -> tuple[str, ...]:
    """Return the scopes to ask for: those of the challenge, else all of the server's; and the one for tokens that can be renewed."""
    wanted = challenge.scopes or resource.scopes
    return (*wanted, _OFFLINE) if wanted and _OFFLINE in server.scopes and _OFFLINE not in wanted else wanted


async def _wait_for_login(task: asyncio.Task[None], label: str, why: str) -> None:
    """Wait for a task that continues if this request is cancelled.

    Raises:
        NotSent: It has failed, or was cancelled because the connection is closed.
    """
    await asyncio.wait({task})
    if task.cancelled():
        raise NotSent(f"{label} cannot be asked any more: the connection is closed.")
    error = task.exception()
    if isinstance(error, Untrusted):
        raise _not_sent(label, f"{why}{error}", error) from error
    if error is not None:
        raise error


def _not_sent(label: str, why: str, error: Untrusted) -> NotSent:
    text = f"{label} cannot be asked: {why.removesuffix('.')}."
    return NotSent(text, code="not_authorized", retryable=isinstance(error, Unreachable))
