"""The public keys of an issuer of tokens (RFC 7517), from where the operator says, or from where the issuer's metadata say.

Fetched as `OAuth` fetches its documents: over TLS or on this machine, without redirects, within bounds, and from no network that is closer
than the issuer's. Knows nothing of tokens.

Sources: RFC 8414; OpenID Connect Discovery 1.0; MCP 2026-07-28, Authorization Server Discovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from callgate.errors import UsageError
from callgate.gateway.tokens import IssuerUnavailable
from callgate.mcp._oauth_addresses import AllowedAddresses, Untrusted, checked_address
from callgate.mcp._oauth_http import OAuthHttp
from callgate.mcp._oauth_metadata import authorization_server_addresses

if TYPE_CHECKING:
    from jwt import PyJWK
    from jwt.algorithms import AllowedPublicKeys

    VerificationKey = PyJWK | AllowedPublicKeys

__all__ = ["IssuerKeys"]

_LOG = logging.getLogger("callgate.gateway")
_FETCH_S = 10.0
_FRESH_S = 300.0
_NO_KID = ""
"""The name of a single key without a `kid`."""
_STEP = "If that is right, give the address of its keys as jwks_url"


class IssuerKeys:
    """The public keys of an issuer, by `kid`. A single key need not have one.

    Fetched at most once in `refetch_s`, by one task for all requests.

    Args:
        issuer: The issuer's address, at which its metadata are looked up if there is no `jwks_url`.
        jwks_url: Where its keys are; may be empty.
    """

    def __init__(self, issuer: str, jwks_url: str, refetch_s: float) -> None:
        self._issuer, self._jwks_url, self._refetch_s = issuer, jwks_url, refetch_s
        self._allowed = AllowedAddresses(jwks_url or issuer, step=_STEP)
        self._keys: dict[str, VerificationKey] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def get(self, kid: object) -> VerificationKey | None:
        """Return a key; None if the issuer has none of that name, or more than one for a token without a `kid`.

        Raises:
            IssuerUnavailable: No keys could be fetched yet.
        """
        known = self._find(kid)
        now = monotonic()
        if known is None or now - self._fetched_at > _FRESH_S:
            self._fetch_at(now)
        if known is not None:
            return known
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
        if not self._keys:
            raise IssuerUnavailable(f"No keys of {self._issuer} could be fetched.")
        return self._find(kid)

    def _find(self, kid: object) -> VerificationKey | None:
        only = next(iter(self._keys.values())) if len(self._keys) == 1 else None
        if kid is None:
            return only
        return self._keys.get(kid) or self._keys.get(_NO_KID) if isinstance(kid, str) else None

    def _fetch_at(self, now: float) -> None:
        if self._fetching is None and now - self._tried_at >= self._refetch_s:
            self._tried_at = now
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())

    async def _fetch(self) -> None:
        try:
            problem = await self.problem()
            if problem:
                _LOG.error("The keys of the issuer of tokens, %s, could not be fetched: %s.", self._issuer, problem)
        finally:
            self._fetching = None

    async def problem(self) -> str:
        """Fetch the keys, and return why that was not possible; empty if it was."""
        try:
            async with asyncio.timeout(_FETCH_S), OAuthHttp(self._allowed) as http:
                url = self._jwks_url or _jwks_url(await http.first_document(authorization_server_addresses(self._issuer)), self._issuer)
                self._keys = _signing_keys(await http.first_document([url]))
            self._fetched_at = monotonic()
        except (Untrusted, UsageError, TimeoutError) as error:  # UsageError: the environment names unusable certificates or proxies
            return str(error).removesuffix(".") or f"there was no answer in {_FETCH_S:g} s"
        return ""


def _jwks_url(metadata: Mapping[str, Any], issuer: str) -> str:
    """Return the address of an issuer's keys from its metadata.

    Raises:
        Untrusted: They are those of another issuer, or name no such place.
    """
    if metadata.get("issuer") != issuer:
        raise Untrusted(
            f"the metadata at {issuer!a} are those of {str(metadata.get('issuer'))[:200]!a}. Write the issuer exactly as they do"
        )
    return checked_address(metadata.get("jwks_uri"), "jwks_uri of its metadata")


def _signing_keys(found: Mapping[str, Any]) -> dict[str, VerificationKey]:
    """Return the keys of a set with which signatures can be checked.

    Raises:
        Untrusted: There is none.
    """
    given = found.get("keys")
    if not isinstance(given, list):
        raise Untrusted("what was found is not a set of keys")
    signing = [(one.get("kid"), key) for one in given if isinstance(one, dict) and (key := _signing_key(one)) is not None]
    usable = {str(kid or _NO_KID): key for kid, key in signing if kid or len(signing) == 1}
    if not usable:
        raise Untrusted("what was found has no key for signatures, or several without a kid")
    return usable


def _signing_key(data: Mapping[str, Any]) -> VerificationKey | None:
    """Return a key with which signatures can be checked; None if this is not such a key.

    With `alg`, it allows that algorithm only; without, which RFC 7517 allows, all that fit its kind.
    """
    from jwt import PyJWK, PyJWTError

    if data.get("use") not in ("sig", None) or data.get("kty") == "oct":
        return None
    try:
        key = PyJWK(dict(data))
    except (PyJWTError, ValueError, TypeError, AttributeError):
        return None
    return key if data.get("alg") else key.key
