"""An authorization server made with the official SDK that issues signed tokens, as identity providers do, and publishes its keys."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    RefreshToken,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.app_thread import AppThread
from tests.oauth_provider import OAuthProvider

__all__ = ["TokenIssuer"]

_METADATA = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"


class TokenIssuer(OAuthProvider):
    """The authorization server, from `with` on. Its user, ann, agrees to everything.

    Args:
        scopes: The scopes that clients may ask for.
        metadata: What its metadata say otherwise.
        openid: Whether its metadata are where OpenID Connect has them.
    """

    def __init__(self, *, scopes: str = "", metadata: Mapping[str, Any] = {}, openid: bool = False) -> None:
        super().__init__(scopes=scopes)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._thread = AppThread(self._answer)
        self.url = f"http://127.0.0.1:{self._thread.port}/"
        """Its name. The SDK writes an empty path as a slash."""
        self._place, told = _OPENID if openid else _METADATA, {"jwks_uri": f"{self.url}keys", **metadata}
        routes = create_auth_routes(self, AnyHttpUrl(self.url), client_registration_options=ClientRegistrationOptions(enabled=True))
        self._metadata = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}authorize",
            "token_endpoint": f"{self.url}token",
            "registration_endpoint": f"{self.url}register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            **told,
        }
        own = [Route("/keys", self._keys), Route(self._place, self._described)]
        self._app = Starlette(routes=[*own, *(route for route in routes if getattr(route, "path", "") != _METADATA)])

    def __enter__(self) -> Self:
        self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.__exit__()

    def token(self, audience: str, scope: str = "", **claims: Any) -> str:
        told = {"iss": self.url, "aud": audience, "exp": time.time() + 600, "sub": "ann", "scope": scope, **claims}
        return jwt.encode(told, self._key, algorithm="ES256", headers={"kid": "one"})

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    async def _keys(self, request: Request) -> JSONResponse:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        return JSONResponse({"keys": [public | {"kid": "one", "use": "sig"}]})

    async def _described(self, request: Request) -> JSONResponse:
        return JSONResponse(self._metadata)

    # What the SDK's routes ask

    async def exchange_authorization_code(self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode) -> OAuthToken:
        scope = " ".join(authorization_code.scopes)
        token = self.token(str(authorization_code.resource), scope)
        return OAuthToken(access_token=token, expires_in=600, scope=scope)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return None

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        raise NotImplementedError("no token is renewed")

    async def load_access_token(self, token: str) -> AccessToken | None:
        return None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        pass
