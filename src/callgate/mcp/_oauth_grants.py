"""The steps of OAuth 2.1 for a client of an MCP server: registration, the user's authorization with PKCE, and tokens.

Every step is checked against the metadata of one authorization server. What one of them has issued is never shown to another.

Sources: OAuth 2.1 (draft), RFC 7591, 7636, 8707, 9207; MCP 2026-07-28, Authorization.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from msgspec import Struct

from callgate.mcp._oauth_addresses import Untrusted
from callgate.mcp._oauth_http import OAuthHttp
from callgate.mcp._oauth_metadata import AuthorizationServer

__all__ = ["AccessToken", "Grant", "OAuthClient", "ask_user", "register", "registered_client", "request_token"]

_AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")
_EXPIRES_EARLY_S = 30.0
_LONGEST_S = 10.0 * 365 * 86_400
_LOGIN_S = 600.0
"""How long the user may take."""
_TOKEN = re.compile(r"[!-~]{1,16384}")
_CREDENTIAL = re.compile(r"[ -~]{1,4096}")
_PARAMETERS = re.compile(r"(?i)\b(code|state|code_challenge|iss)=[^&\s'\"]+")


class OAuthClient(Struct, frozen=True, kw_only=True):
    """This client, as one authorization server knows it."""

    client_id: str
    secret: str = ""
    auth_method: str = "none"

    def __repr__(self) -> str:
        return f"OAuthClient({self.client_id!r})"


class AccessToken(Struct, frozen=True, kw_only=True):
    """An access token, and what renews it."""

    access: str
    refresh: str
    expires: float
    """Time of `time.monotonic` from which the token is renewed before it is used; infinite if nothing renews it, until it is refused."""

    def __repr__(self) -> str:
        return "<token>"


class Grant(Struct, frozen=True, kw_only=True):
    """A request for a token: the client, the authorization server and the MCP server it is for."""

    server: AuthorizationServer
    client: OAuthClient
    resource: str


def registered_client(server: AuthorizationServer, client_id: str, secret: str) -> OAuthClient:
    """Return a client that was registered by hand."""
    method = "none"
    if secret:
        method = "client_secret_basic" if "client_secret_basic" in server.token_auth_methods else "client_secret_post"
    return OAuthClient(client_id=client_id, secret=secret, auth_method=method)


async def register(http: OAuthHttp, server: AuthorizationServer, name: str, redirect_uri: str, scopes: Sequence[str]) -> OAuthClient:
    """Register this client (RFC 7591).

    Raises:
        Untrusted: The authorization server registers no clients, or refuses this one.
    """
    method = next((one for one in _AUTH_METHODS if one in server.token_auth_methods), "")
    if not server.registration_endpoint or not method:
        raise Untrusted(f"the authorization server {server.issuer!r} registers no clients. Register one there and give its client_id")
    body: dict[str, Any] = {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "web" if urlsplit(redirect_uri).scheme == "https" else "native",
    }
    if scopes:
        body["scope"] = " ".join(scopes)
    found = await http.post_json(server.registration_endpoint, body)
    secret, used = found.get("client_secret", ""), found.get("token_endpoint_auth_method", method)
    if not _is_credential(found.get("client_id")) or (secret != "" and not _is_credential(secret)) or used not in _AUTH_METHODS:
        raise Untrusted(f"the authorization server {server.issuer!r} answered the registration without a valid client")
    return OAuthClient(client_id=found["client_id"], secret=secret, auth_method=used)


async def ask_user(
    http: OAuthHttp, grant: Grant, redirect_uri: str, scopes: Sequence[str], open_page: Callable[[str], Awaitable[str]]
) -> AccessToken:
    """Ask the user to authorize this client, and return the token.

    Raises:
        Untrusted: The user has refused, or the answer is not that of the authorization server.
    """
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    query = {
        "response_type": "code",
        "client_id": grant.client.client_id,
        "redirect_uri": redirect_uri,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "state": state,
        "resource": grant.resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    endpoint = grant.server.authorization_endpoint
    address = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
    http.allowed.check(endpoint)
    code = _code_of(await _open_login(open_page, address), grant.server, state)
    return await request_token(
        http, grant, {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
    )


async def request_token(http: OAuthHttp, grant: Grant, form: Mapping[str, str]) -> AccessToken:
    """Return the token that the authorization server issues.

    Raises:
        Untrusted: It issues none.
    """
    client, headers = grant.client, {}
    sent = {**form, "resource": grant.resource, "client_id": client.client_id}
    if client.auth_method == "client_secret_basic":
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif client.auth_method == "client_secret_post":
        sent["client_secret"] = client.secret
    found = await http.post_form(grant.server.token_endpoint, sent, headers)
    access, refresh, lasts = found.get("access_token"), found.get("refresh_token", form.get("refresh_token", "")), found.get("expires_in")
    if not isinstance(access, str) or not _TOKEN.fullmatch(access) or str(found.get("token_type")).lower() != "bearer":
        raise Untrusted(f"the authorization server {grant.server.issuer!r} answered without a valid bearer token")
    if not isinstance(refresh, str) or not _TOKEN.fullmatch(refresh):
        refresh = ""
    seconds = min(max(lasts, 0), _LONGEST_S) - _EXPIRES_EARLY_S if refresh and isinstance(lasts, (int, float)) else float("inf")
    return AccessToken(access=access, refresh=refresh, expires=time.monotonic() + seconds)


async def _open_login(open_page: Callable[[str], Awaitable[str]], address: str) -> dict[str, str]:
    """Return the parameters with which the user comes back.

    Raises:
        Untrusted: The user could not be asked, takes too long, or comes back with a parameter twice.
    """
    try:
        async with asyncio.timeout(_LOGIN_S) as limit:
            values = parse_qs(urlsplit(await open_page(address)).query, max_num_fields=100)
    except Exception as error:
        if limit.expired():
            raise Untrusted(f"the user has not authorized it within {_LOGIN_S:g} s") from None
        said = _PARAMETERS.sub(r"\1=***", str(error))[:200]  # its address may contain the code
        raise Untrusted(f"the user could not be asked ({type(error).__name__}: {said})") from None
    if any(len(given) > 1 for given in values.values()):
        raise Untrusted("the answer has a parameter twice")
    return {name: given[0] for name, given in values.items()}


def _is_credential(value: object) -> bool:
    return isinstance(value, str) and _CREDENTIAL.fullmatch(value) is not None


def _code_of(found: Mapping[str, str], server: AuthorizationServer, state: str) -> str:
    """Return the code among the parameters with which the user was sent back."""
    if not secrets.compare_digest(found.get("state", "").encode("utf-8", "replace"), state.encode()):
        raise Untrusted("the answer belongs to another authorization request (its state differs)")
    issuer = found.get("iss")
    if issuer != server.issuer and (issuer is not None or server.names_itself):
        raise Untrusted(f"the answer is of the authorization server {str(issuer)[:200]!a}, and {server.issuer!r} was asked")
    if "code" not in found:
        said = ascii(": ".join(found[name] for name in ("error", "error_description") if name in found)[:300])[1:-1]
        raise Untrusted(f"the authorization server {server.issuer!r} refused it: {said or 'without a reason'}")
    return found["code"]
