"""Authenticators: which principal a bearer token stands for. Knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from types import MappingProxyType
from typing import Protocol

from callgate.gateway.principals import Principal

__all__ = ["Anonymous", "AnyTokens", "Authenticator", "CurrentTokens", "IssuerUnavailable", "StaticTokens"]


class IssuerUnavailable(Exception):
    """Whether a token is valid cannot be told now, because its issuer cannot be reached."""


class Authenticator(Protocol):
    """Decides on whose behalf a request is made."""

    async def principal_of(self, token: str) -> Principal | None:
        """Return the principal of a bearer token; None if the token is not valid.

        Args:
            token: Empty if the request has none.

        Raises:
            IssuerUnavailable: The token cannot be checked now.
        """
        ...


class Anonymous:
    """Every request is made by one principal, whether it has a token or not. Only for a server that nobody else can reach."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    async def principal_of(self, token: str) -> Principal | None:
        return self._principal


class AnyTokens:
    """Tokens of several kinds: the first authenticator that knows a token returns its principal."""

    def __init__(self, *kinds: Authenticator) -> None:
        self._kinds = kinds

    async def principal_of(self, token: str) -> Principal | None:
        for kind in self._kinds:
            found = await kind.principal_of(token)
            if found is not None:
                return found
        return None


class CurrentTokens:
    """Tokens that can be replaced while the gateway runs."""

    def __init__(self, tokens: Authenticator) -> None:
        self.tokens = tokens

    def replace(self, tokens: Authenticator) -> None:
        """Replace the accepted tokens, from the next request on."""
        self.tokens = tokens

    async def principal_of(self, token: str) -> Principal | None:
        return await self.tokens.principal_of(token)


class StaticTokens:
    """Tokens that are known from the start. Only their SHA-256 digests are kept.

    Args:
        tokens: The principal of each token.
        digests: The principal of each further token by its digest, in hexadecimal.
    """

    def __init__(self, tokens: Mapping[str, Principal], *, digests: Mapping[str, Principal] = MappingProxyType({})) -> None:
        known = {sha256(token.encode()).digest(): principal for token, principal in tokens.items()}
        known |= {bytes.fromhex(digest): principal for digest, principal in digests.items()}
        self._principals = tuple(known.items())

    async def principal_of(self, token: str) -> Principal | None:
        given, found = sha256(token.encode()).digest(), None
        for digest, principal in self._principals:
            if compare_digest(digest, given):
                found = principal
        return found
