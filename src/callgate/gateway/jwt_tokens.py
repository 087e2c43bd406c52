"""`JwtTokens`: signed tokens of an issuer (RFC 7519), checked with the public keys that the issuer publishes (RFC 7517).

The client is never told what is wrong with its token; the log is. Tokens are neither kept nor logged. Knows nothing of HTTP requests.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from callgate._option_checks import by_name
from callgate.errors import UsageError
from callgate.gateway._access.issuer_keys import IssuerKeys
from callgate.gateway.principals import Principal
from callgate.mcp._oauth_addresses import Untrusted, checked_address

__all__ = ["JwtTokens"]

_LOG = logging.getLogger("callgate.gateway")
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_NO_ALGORITHM = "none of them"
"""An algorithm that does not exist: PyJWT refuses an empty list."""
_LATEST = 2**53
"""The latest end of a token, in seconds since 1970; a later one, which a float may not hold, counts as this."""
_REQUIRED = ("exp", "iss", "aud")
_SCOPE_CLAIMS = ("scope", "scp")
"""Where issuers write the scopes of a token: as one text (RFC 9068), or as a list."""
_LONGEST_NAME = 200
_FAULTS = {
    "ExpiredSignatureError": "it has expired",
    "ImmatureSignatureError": "it is not valid yet",
    "InvalidAudienceError": "it is for another audience",
    "InvalidIssuerError": "it is of another issuer",
    "InvalidAlgorithmError": "its algorithm is not allowed, or does not fit the issuer's key",
    "InvalidSignatureError": "its signature is wrong",
    "InvalidKeyError": "its algorithm does not fit the issuer's key",
    "MissingRequiredClaimError": f"one of the claims {', '.join(_REQUIRED)} is missing",
    "DecodeError": "it is no JWT, nor the token of a known principal",
}


class KeyRefused(UsageError):
    """The public key of `JwtTokens` cannot be used.

    Args:
        reason: What is wrong with it, as the rest of a sentence about the key.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"JwtTokens(key=...) {reason}")
        self.reason = reason


class JwtTokens:
    """Tokens that one issuer has signed with a private key. The claims `exp`, `iss` and `aud` are required. Implements `Authenticator`.

    Args:
        issuer: The claim `iss` of its tokens.
        audience: How the issuer calls this gateway; several names may be given. A token for somebody else is refused.
        jwks_url: Where the issuer publishes its public keys; empty: where its metadata say, which are looked up at `issuer`. They are
            fetched when they are needed. While the issuer cannot be reached, those that were fetched before are used.
        key: The issuer's public key as PEM; then nothing is fetched.
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
        if jwks_url and key:
            raise UsageError("JwtTokens takes jwks_url or key, and not both.")
        self._issuer, self._leeway_s = issuer, leeway_s
        self._audience = audience if isinstance(audience, str) else list(audience)
        self._algorithms = list(algorithms)
        self._key = _public_key(key, self._algorithms) if key else None
        self._keys = None if key else _keys(issuer, jwks_url, refetch_s)
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
                algorithms=_fitting(key, self._algorithms) or [_NO_ALGORITHM],
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway_s,
                options={"require": list(_REQUIRED)},
            )
        except jwt.PyJWTError as error:
            _log_refusal(_FAULTS.get(type(error).__name__, "it is not valid"))
            return None
        return self._principal(claims)

    async def key_problem(self) -> str:
        """Fetch the issuer's keys, and return why that was not possible; empty if it was, or if the key is given."""
        return "" if self._keys is None else await self._keys.problem()

    def _principal(self, claims: Mapping[str, Any]) -> Principal | None:
        name = claims.get(self._principal_claim)
        if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
            _log_refusal(f"its claim {self._principal_claim} is not a name of at most {_LONGEST_NAME} characters")
            return None
        known = self._known.get(name) or Principal(name=name)
        return replace(known, scopes=_scopes(claims), expires_at=float(min(int(claims["exp"]), _LATEST)) + self._leeway_s)


def _scopes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    given = (claims.get(name) for name in _SCOPE_CLAIMS)
    texts = (one.split() if isinstance(one, str) else one if isinstance(one, list) else () for one in given)
    return tuple(dict.fromkeys(scope for text in texts for scope in text if isinstance(scope, str)))


def _keys(issuer: str, jwks_url: str, refetch_s: float) -> IssuerKeys:
    _import_jwt()
    name = "jwks_url" if jwks_url else "issuer"
    try:
        checked_address(jwks_url or issuer, name)
    except Untrusted:
        raise UsageError(
            f"JwtTokens({name}={jwks_url or issuer!r:.200}) must be an https address, or one of this machine, because keys that come"
            " without TLS can be forged. Give the issuer's address, jwks_url or key."
        ) from None
    return IssuerKeys(issuer, jwks_url, refetch_s)


def _log_refusal(why: str) -> None:
    _LOG.warning("A token was refused: %s.", why)


def _public_key(pem: str, algorithms: Sequence[str]) -> Any:
    """Return a public key with which one of the algorithms can check signatures.

    Raises:
        KeyRefused: It is not such a key.
    """
    _import_jwt()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise KeyRefused("must be a public key as PEM, which begins with '-----BEGIN PUBLIC KEY-----'.") from None
    if not _fitting(key, algorithms):
        kinds = ", ".join(_fitting(key, _ALGORITHMS)) or "no algorithm that can be allowed"
        raise KeyRefused(f"is a key for {kinds}, and the allowed algorithms are {', '.join(algorithms)}. Allow one that fits the key.")
    return key


def _fitting(key: Any, algorithms: Sequence[str]) -> list[str]:
    """Return the algorithms whose signatures a key can check; all for a `PyJWK`, which allows only its own."""
    jwt = _import_jwt()
    return [one for one in algorithms if isinstance(key, jwt.PyJWK) or _fits(key, one)]


def _fits(key: Any, algorithm: str) -> bool:
    jwt = _import_jwt()
    try:
        jwt.get_algorithm_by_name(algorithm).prepare_key(key)
    except (jwt.PyJWTError, TypeError):
        return False
    return True


def _import_jwt() -> Any:
    try:
        import jwt
    except ImportError:
        raise UsageError("JwtTokens needs PyJWT. Install it with: python -m pip install 'callgate[gateway]'") from None
    return jwt
