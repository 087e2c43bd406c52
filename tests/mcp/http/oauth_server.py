"""A server made with the official SDK that answers only to access tokens, with an authorization server of its own at the same address."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from typing import Any, Self

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    RefreshToken,
    TokenError,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from tests.app_thread import AppThread
from tests.oauth_provider import OAuthProvider
from tests.waiting import PATIENCE_S

__all__ = ["OAuthServer"]


class OAuthServer(OAuthProvider):
    """The server, from `with` on.

    Args:
        lasts_s: How many seconds the server says that its tokens last. It accepts them for ever.
        refuses: Whether it accepts no token, and repeats the one that it was sent.
        renews: Whether the authorization server renews tokens, each refresh token once.
        refreshes: Whether it issues refresh tokens.
    """

    def __init__(self, *, lasts_s: int = 3_600, refuses: bool = False, renews: bool = True, refreshes: bool = True) -> None:
        super().__init__()
        self.renewals = 0
        """How often a token was renewed, or was not."""
        self.is_down = False
        """Whether the authorization server answers 503 to every request for a token."""
        self.renewing, self.may_renew = threading.Event(), threading.Event()
        """Set when a renewal has begun, and when renewals may end."""
        self.may_renew.set()
        self._renews = renews
        self._refreshes = refreshes
        self._used = set[str]()
        self._lasts_s = lasts_s
        self._refuses = refuses
        self._tokens: dict[str, AccessToken] = {}
        self._thread = AppThread(self._answer)
        origin = f"http://127.0.0.1:{self._thread.port}"
        self.url = f"{origin}/mcp"
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(origin),
            resource_server_url=AnyHttpUrl(self.url),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=True,
        )
        server = MCPServer("guarded", auth_server_provider=self, auth=settings, log_level="CRITICAL")

        @server.tool()
        async def look(times: int = 1) -> str:
            """Look."""
            return "seen"

        self._app = server.streamable_http_app()

    def __enter__(self) -> Self:
        self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.__exit__()

    def forget_tokens(self) -> None:
        self._tokens.clear()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if self.is_down and scope["path"] == "/token":
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        token = dict(scope.get("headers", ())).get(b"authorization")
        if token is None or not self._refuses or scope["path"] != "/mcp":
            await self._app(scope, receive, send)
            return
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": f"not valid: {token.decode()}"}}
        headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(error).encode()})

    # Of the authorization server

    async def exchange_authorization_code(self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode) -> OAuthToken:
        return self._issue(str(client.client_id))

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return RefreshToken(token=refresh_token, client_id=str(client.client_id), scopes=[])

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.renewals += 1
        if not self._renews or refresh_token.token in self._used:
            raise TokenError("invalid_grant")
        self._used.add(refresh_token.token)
        self.renewing.set()
        await asyncio.to_thread(self.may_renew.wait, PATIENCE_S)
        return self._issue(str(client.client_id))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self._tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self._tokens.pop(token.token, None)

    def _issue(self, client_id: str) -> OAuthToken:
        access = f"access-{secrets.token_hex(16)}"
        self._tokens[access] = AccessToken(token=access, client_id=client_id, scopes=[], resource=self.url)
        refresh = f"refresh-{secrets.token_hex(16)}" if self._refreshes else None
        return OAuthToken(access_token=access, expires_in=self._lasts_s, refresh_token=refresh)
