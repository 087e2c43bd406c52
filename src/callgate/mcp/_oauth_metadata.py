"""Read what a server and its authorization server publish about authorization, and refuse what cannot be trusted.

A protected server answers 401 with a challenge, which leads to its metadata (RFC 9728). These name the authorization server, whose own
metadata (RFC 8414 or OpenID Connect Discovery) name its endpoints. All of it comes from others: it must belong to the address it was asked
for, and tokens travel over TLS or not at all, except on this machine. Sends nothing.

Sources: MCP 2026-07-28, Authorization; RFC 6750, 8414, 8707, 9728.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from callgate.mcp._oauth_addresses import Untrusted, checked_address
from callgate.models._credential_redaction import redact_url

__all__ = [
    "AuthorizationServer",
    "Challenge",
    "ProtectedResource",
    "authorization_server",
    "authorization_server_addresses",
    "challenge_of",
    "protected_resource",
    "protected_resource_addresses",
]

_MOST_HEADER_CHARS = 8_192
_PARAMETER = re.compile(r'(?<![A-Za-z_])([A-Za-z_]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))')
_BEARER = re.compile(r"(?:^|,|\s)bearer(?:\s|$)", re.IGNORECASE)
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_OWN_PARAMETERS = frozenset(
    {"response_type", "client_id", "redirect_uri", "code_challenge", "code_challenge_method", "state", "resource", "scope", "request"}
)


class Challenge(Struct, frozen=True, kw_only=True):
    """The fields with which a server refuses a request that is not authorized."""

    metadata_url: str = ""
    scopes: tuple[str, ...] = ()


class ProtectedResource(Struct, frozen=True, kw_only=True):
    """The metadata of a protected server."""

    resource: str
    """The server's identifier, which tokens are asked for exactly as it is published."""
    issuers: tuple[str, ...]
    scopes: tuple[str, ...]


class AuthorizationServer(Struct, frozen=True, kw_only=True):
    """The metadata of an authorization server."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    token_auth_methods: tuple[str, ...]
    scopes: tuple[str, ...]
    takes_metadata_urls: bool
    """Whether a client may use the address of its metadata as its id."""
    names_itself: bool
    """Whether every answer of the authorization endpoint has `iss` (RFC 9207)."""


def challenge_of(status: int, header: str) -> Challenge | None:
    """Return the challenge of a response; None if it is about something other than authorization."""
    after = _BEARER.split(header[:_MOST_HEADER_CHARS], maxsplit=1)
    found = {name.lower(): quoted or bare for name, quoted, bare in _PARAMETER.findall(after[1])} if len(after) == 2 else {}
    if status != 401 and not (status == 403 and found.get("error") == "insufficient_scope"):
        return None
    return Challenge(metadata_url=found.get("resource_metadata", ""), scopes=tuple(_SCOPE.findall(found.get("scope", ""))))


def protected_resource_addresses(url: str, challenge: Challenge) -> list[str]:
    """Return the places where a server's metadata may be: where the challenge says, or the well-known ones."""
    if challenge.metadata_url:
        return [challenge.metadata_url]
    parts = urlsplit(url)
    known = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/.well-known/oauth-protected-resource"
    path = parts.path.rstrip("/")
    return [known + path, known] if path else [known]


def protected_resource(found: Mapping[str, Any], url: str) -> ProtectedResource:
    """Return the metadata of the server at `url`.

    Raises:
        Untrusted: They are those of another server, or name no authorization server.
    """
    resource, issuers = found.get("resource"), _as_texts(found.get("authorization_servers"))
    if not isinstance(resource, str) or not _covers(resource, url):
        raise Untrusted(f"its metadata are those of {str(resource)[:200]!a}, which is another server")
    if not issuers:
        raise Untrusted("its metadata name no authorization server")
    return ProtectedResource(resource=resource, issuers=issuers, scopes=_as_texts(found.get("scopes_supported")))


def authorization_server_addresses(issuer: str) -> list[str]:
    """Return the places where the metadata of an authorization server may be.

    Raises:
        Untrusted: The issuer is not an address that may be asked.
    """
    parts = urlsplit(checked_address(issuer, "issuer"))
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    well_known = [f"{origin}/.well-known/oauth-authorization-server{path}", f"{origin}/.well-known/openid-configuration{path}"]
    return [*well_known, f"{origin}{path}/.well-known/openid-configuration"] if path else well_known


def authorization_server(found: Mapping[str, Any], issuer: str) -> AuthorizationServer:
    """Return the metadata of an authorization server.

    Raises:
        Untrusted: They are those of another one, an endpoint has no TLS, or PKCE with S256 is not supported.
    """
    if found.get("issuer") != issuer:
        raise Untrusted(f"the metadata of {issuer!a} are those of the authorization server {str(found.get('issuer'))[:200]!a}")
    if "S256" not in _as_texts(found.get("code_challenge_methods_supported")):
        raise Untrusted(f"the authorization server {issuer!r} does not support PKCE with S256, which MCP requires")
    registration = found.get("registration_endpoint")
    return AuthorizationServer(
        issuer=issuer,
        authorization_endpoint=_authorization_endpoint(found.get("authorization_endpoint")),
        token_endpoint=checked_address(found.get("token_endpoint"), "token_endpoint"),
        registration_endpoint="" if registration is None else checked_address(registration, "registration_endpoint"),
        token_auth_methods=_as_texts(found.get("token_endpoint_auth_methods_supported")) or ("client_secret_basic",),
        scopes=_as_texts(found.get("scopes_supported")),
        takes_metadata_urls=found.get("client_id_metadata_document_supported") is True,
        names_itself=found.get("authorization_response_iss_parameter_supported") is True,
    )


def _authorization_endpoint(value: object) -> str:
    """Return the address that the user is sent to. It must not contain parameters of the request, which could replace those of this client.

    Raises:
        Untrusted: It does, or is not an address that may be opened.
    """
    address = checked_address(value, "authorization_endpoint")
    if _OWN_PARAMETERS & parse_qs(urlsplit(address).query, keep_blank_values=True).keys():
        raise Untrusted(f"the authorization_endpoint {redact_url(address)[:200]!a} contains parameters of the request")
    return address


def _covers(resource: str, url: str) -> bool:
    """Whether an identifier is that of the server at `url`: the same origin, and the same path or one above."""
    try:
        named, asked = urlsplit(resource), urlsplit(url)
        same = (named.scheme, named.hostname, named.port) == (asked.scheme, asked.hostname, asked.port)
    except ValueError:
        return False
    path = named.path.rstrip("/")
    return same and not named.fragment and (asked.path.rstrip("/") + "/").startswith(path + "/")


def _as_texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
