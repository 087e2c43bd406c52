"""`JwtTokens`: signed tokens of an issuer (RFC 7519), checked with the public keys that the issuer publishes (RFC 7517).

The client is never told what is wrong with its token; the log is. Tokens are neither kept nor logged. Knows nothing of HTTP requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from callgate._option_checks import by_name
from callgate.errors import UsageError
from callgate.gateway.principals import Principal
from callgate.gateway.tokens import IssuerUnavailable

if TYPE_CHECKING:
    from jwt import PyJWK

__all__ = ["JwtTokens"]

_LOG = logging.getLogger("callgate.gateway")
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REQUIRED = ("exp", "iss", "aud")
_FETCH_S = 10.0
_FRESH_S = 300.0
_LONGEST_NAME = 200
_FAULTS = {
    "ExpiredSignatureError": "it has expired",
    "ImmatureSignatureError": "it is not valid yet",
    "InvalidAudienceError": "it is for another audience",
    "InvalidIssuerError": "it is of another issuer",
    "InvalidAlgorithmError": "its algorithm is not allowed",
    "InvalidSignatureError": "its signature is wrong",
    "InvalidKeyError": "its algorithm does not fit the issuer's key",
    "MissingRequiredClaimError": f"one of the claims {', '.join(_REQUIRED)} is missing",
    "DecodeError": "it is malformed",
}


class JwtTokens:
    """Tokens that one issuer has signed with a private key. The claims `exp`, `iss` and `aud` are required. Implements `Authenticator`.

    Args:
        issuer: The claim `iss` of its tokens.
        audience: How the issuer calls this gateway; several names may be given. A token for somebody else is refused.
        jwks_url: Where the issuer publishes its public keys. They are fetched when they are needed. While the issuer cannot be reached,
            those that were fetched before are used.
        key: The issuer's public key as PEM, instead of `jwks_url`.
        algorithms: The allowed signature algorithms. Only those with public keys can be allowed.
        leeway_s: How far the clocks may differ, in seconds.
        principal_claim: The claim that has the name of the principal.
        principals: Principals that are known by name, with what they may use. The others are clients with the default limits.
        refetch_s: The least time between two fetches of the keys, in seconds, whatever tokens arrive.

    Raises:
        UsageError: PyJWT is not installed, or an option cannot be used.
    """

    @by_name
    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        jwks_url: str = "",
        key: str = "",
        algorithms: Sequence[str] = ("RS256", "ES256", "EdDSA"),
        leeway_s: float = 30.0,
        principal_claim: str = "sub",
        principals: Iterable[Principal] = (),
        refetch_s: float = 30.0,
    ) -> None:
        if not algorithms or any(one not in _ALGORITHMS for one in algorithms):
            raise UsageError(f"JwtTokens(algorithms={algorithms!r:.200}): each must be one of {', '.join(_ALGORITHMS)}.")
        if bool(jwks_url) == bool(key):
            raise UsageError("JwtTokens needs jwks_url or key, and not both.")
        self._issuer, self._leeway_s = issuer, leeway_s
        self._audience = audience if isinstance(audience, str) else list(audience)
        self._algorithms = list(algorithms)
        self._key = _public_key(key) if key else None
        self._keys = _IssuerKeys(jwks_url, refetch_s) if jwks_url else None
        self._principal_claim = principal_claim
        self._known = {one.name: one for one in principals}

    async def principal_of(self, token: str) -> Principal | None:
        if not token:
            return None
        jwt = _import_jwt()
        try:
            key = self._key if self._keys is None else await self._keys.get(jwt.get_unverified_header(token).get("kid"))
            if key is None:
                _log_refusal("the issuer has no key with its kid")
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway_s,
                options={"require": list(_REQUIRED)},
            )
        except jwt.PyJWTError as error:
            _log_refusal(_FAULTS.get(type(error).__name__, "it is not valid"))
            return None
        return self._principal(claims)

    def _principal(self, claims: Mapping[str, Any]) -> Principal | None:
        name = claims.get(self._principal_claim)
        if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
            _log_refusal(f"its claim {self._principal_claim} is no name of at most {_LONGEST_NAME} characters")
            return None
        return self._known.get(name) or Principal(name=name)


class _IssuerKeys:
    """The public keys of an issuer, by `kid`. Fetched in a thread, at most once in `refetch_s`, by one task for all requests."""

    def __init__(self, url: str, refetch_s: float) -> None:
        jwt = _import_jwt()
        try:
            self._client = jwt.PyJWKClient(url, cache_jwk_set=False, timeout=_FETCH_S)
        except jwt.PyJWKClientError:
            raise UsageError(f"JwtTokens(jwks_url={url!r:.200}) must be an http or https URL.") from None
        self._url, self._refetch_s = url, refetch_s
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    async def get(self, kid: object) -> PyJWK | None:
        """Return a key; None if the issuer has none of that name.

        Raises:
            IssuerUnavailable: No keys could be fetched yet.
        """
        known = self._keys.get(kid) if isinstance(kid, str) else None
        now = monotonic()
        if known is None or now - self._fetched_at > _FRESH_S:
            self._fetch_at(now)
        if known is not None:
            return known
        if self._fetching is not None:
            await asyncio.shield(self._fetching)
        if not self._keys:
            raise IssuerUnavailable(f"No keys could be fetched from {self._url}.")
        return self._keys.get(kid) if isinstance(kid, str) else None

    def _fetch_at(self, now: float) -> None:
        if self._fetching is None and now - self._tried_at >= self._refetch_s:
            self._tried_at = now
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())

    async def _fetch(self) -> None:
        try:
            keys = await asyncio.to_thread(self._client.get_signing_keys)
            self._keys = {str(key.key_id): key for key in keys}
            self._fetched_at = monotonic()
        except (_import_jwt().PyJWTError, ValueError, OSError) as error:
            _LOG.error("The keys of the issuer of tokens could not be fetched from %s: %s", self._url, error)
        finally:
            self._fetching = None


def _log_refusal(why: str) -> None:
    _LOG.warning("A token was refused: %s.", why)


def _public_key(pem: str) -> Any:
    _import_jwt()
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        return load_pem_public_key(pem.encode())
    except ValueError:
        raise UsageError("JwtTokens(key=...) must be a public key as PEM, which begins with '-----BEGIN PUBLIC KEY-----'.") from None


def _import_jwt() -> Any:
    try:
        import jwt
    except ImportError:
        raise UsageError("JwtTokens needs PyJWT. Install it with: python -m pip install 'callgate[gateway]'") from None
    return jwt
