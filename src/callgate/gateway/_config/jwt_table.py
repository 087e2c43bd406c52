"""Read `[jwt]` of a gateway's configuration: whose tokens are taken, and what clients of OAuth are told."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import fields

from callgate._network_addresses import NotPlain
from callgate._terminal_text import one_line
from callgate._unusable_paths import displayed
from callgate.gateway._config.toml_table import TomlTable
from callgate.gateway.config import JwtConfig
from callgate.mcp._oauth_addresses import is_private_connection

__all__ = ["read_jwt"]

_PUBLIC_KEY: Final = re.compile(rb"-----BEGIN (?:RSA )?PUBLIC KEY-----")
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~%/-]*)?")
_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")
_MOST_LEEWAY_S: Final = 3_600
_OF_OAUTH: Final = ("scopes", "tool_scopes", "documentation")


def read_jwt(root: TomlTable) -> JwtConfig | None:
    """Return what `[jwt]` says; None if there is no such table.

    Raises:
        UsageError: Something in it is wrong.
    """
    table = root.table("jwt")
    if table is None:
        return None
    table.refuse_unknown([one.name for one in fields(JwtConfig)])
    resource = _resource(table)
    jwks_url, key_file = _keys(table)
    leeway = table.seconds("leeway_s", zero=True, most=_MOST_LEEWAY_S)
    return JwtConfig(
        issuer=_issuer(table, is_asked=not (jwks_url or key_file) or bool(resource)),
        audience=_audience(table, resource),
        jwks_url=jwks_url,
        key_file=key_file,
        algorithms=_algorithms(table),
        principal_claim=table.text("principal_claim", "sub") or "sub",
        leeway_s=30.0 if leeway is None else leeway,
        resource=resource,
        scopes=_scopes(table, "scopes"),
        tool_scopes=_tool_scopes(table),
        documentation=table.text("documentation", variables=True),
    )


def _issuer(table: TomlTable, *, is_asked: bool) -> str:
    issuer = table.text("issuer", variables=True)
    if not issuer:
        raise table.wrong("issuer", "is missing", "Without it, tokens that were made for others would be accepted. Write it.")
    if is_asked and not _is_private(issuer):
        fact = f"is {one_line(issuer, 200)!r}; it must begin with https://, because its metadata are looked up there"
        raise table.wrong("issuer", fact, "Write its address, exactly as in the claim iss of its tokens.")
    return issuer


def _audience(table: TomlTable, resource: str) -> tuple[str, ...]:
    given = table.texts("audience", variables=True)
    if given and all(given):
        return given
    if not resource or given:
        raise table.wrong(
            "audience", "is missing", "Without it, tokens that were made for others would be accepted. Write it, or resource."
        )
    return (resource,) if resource.count("/") > 2 else (resource, f"{resource}/")  # some libraries write an empty path as '/'


def _keys(table: TomlTable) -> tuple[str, str]:
    """Return `jwks_url` and `key_file`, one of which is empty."""
    jwks_url, key_file = table.text("jwks_url", variables=True), table.text("key_file", variables=True)
    if jwks_url and key_file:
        raise table.wrong("jwks_url", "and key_file are both given", "Write one of them, or none if the issuer's metadata name its keys.")
    if jwks_url and not _is_private(jwks_url):
        raise table.wrong("jwks_url", f"is {one_line(jwks_url, 200)!r}; it must begin with https://", "Keys from elsewhere can be forged.")
    if not key_file:
        return jwks_url, ""
    path = table.file.path(key_file)
    if not path.is_file():
        raise table.wrong("key_file", f"is {displayed(path)}, which is not a file", "Write the path of the public key.")
    if not _PUBLIC_KEY.search(path.read_bytes()):
        fact = f"is {displayed(path)}, which has no line '-----BEGIN PUBLIC KEY-----'"
        raise table.wrong("key_file", fact, "Write the path of the issuer's public key in PEM form.")
    return "", str(path)


def _algorithms(table: TomlTable) -> tuple[str, ...]:
    algorithms = table.texts("algorithms", ("RS256",))
    if not algorithms:
        raise table.wrong(
            "algorithms", "is empty, so that no token could be accepted", "Leave it out for RS256, or write such as ['ES256']."
        )
    for one in algorithms:
        if not re.fullmatch(r"(?:RS|PS|ES)(?:256|384|512)|EdDSA", one):
            fact = f"has {one_line(one, 40)!r}, which is not an algorithm with a public key"
            raise table.wrong("algorithms", fact, "Take of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA.")
    return algorithms


def _resource(table: TomlTable) -> str:
    resource = table.text("resource", variables=True)
    if not resource:
        for key in _OF_OAUTH:
            if key in table:
                raise table.wrong(key, "is given without resource", "Write the address at which clients call this gateway as resource.")
    elif not (_ADDRESS.fullmatch(resource) and _is_private(resource)):
        fact = f"is {one_line(resource, 200)!r}; it must begin with https:// and have neither query nor fragment"
        raise table.wrong("resource", fact, 'Write the address at which clients call this gateway, such as "https://gate.example.com/mcp".')
    return resource


def _tool_scopes(table: TomlTable) -> dict[str, tuple[str, ...]]:
    given = table.table("tool_scopes")
    return {} if given is None else {pattern: _scopes(given, pattern) for pattern in given.entries}


def _scopes(table: TomlTable, key: str) -> tuple[str, ...]:
    found = table.texts(key)
    for scope in found:
        if not _SCOPE.fullmatch(scope):
            raise table.wrong(key, f"has {one_line(scope, 80)!r}, which is not a scope", 'Write a list of words, such as ["shop:read"].')
        if scope == "offline_access":
            raise table.wrong(key, "has offline_access, which is for clients to ask for, and not for this gateway", "Remove it.")
    return found


def _is_private(url: str) -> bool:
    try:
        return is_private_connection(url)
    except NotPlain:
        return False
