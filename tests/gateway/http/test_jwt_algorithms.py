"""Which algorithms a key of an issuer allows, whether the key is given or published."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from callgate.errors import UsageError
from callgate.gateway.jwt_tokens import JwtTokens
from tests.gateway.http.test_jwt_tokens import AUDIENCE, ISSUER, KEY, PUBLIC_PEM, Issuer, signed, tokens

RSA_KEY = rsa.generate_private_key(65_537, 2_048)


@pytest.fixture
async def issuer() -> Any:
    async with Issuer() as running:
        yield running


def published(**more: Any) -> dict[str, Any]:
    """Return the public half of `RSA_KEY` as an issuer publishes it."""
    key: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key()))
    return key | {"kid": "one", "use": "sig"} | more


def pem(key: Any) -> str:
    return str(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256"])
async def test_a_published_key_without_an_algorithm_fits_all_of_its_kind(issuer: Issuer, algorithm: str) -> None:
    issuer.body = json.dumps({"keys": [published()]}).encode()
    assert await tokens(issuer, algorithms=[algorithm]).principal_of(signed(RSA_KEY, algorithm=algorithm)) is not None


async def test_a_published_key_with_an_algorithm_allows_no_other(issuer: Issuer) -> None:
    issuer.body = json.dumps({"keys": [published(alg="RS256")]}).encode()
    checked = tokens(issuer, algorithms=["RS256", "RS512"])
    assert await checked.principal_of(signed(RSA_KEY, algorithm="RS256")) is not None
    assert await checked.principal_of(signed(RSA_KEY, algorithm="RS512")) is None


async def test_keys_that_cannot_be_used_do_not_spoil_the_others(issuer: Issuer) -> None:
    secret = {"kty": "oct", "kid": "secret", "k": "AAAA"}
    issuer.body = json.dumps({"keys": [published(alg=["RS256"], kid="odd"), secret, 5, published()]}).encode()
    checked = tokens(issuer, algorithms=["RS256"])
    assert await checked.principal_of(signed(RSA_KEY, algorithm="RS256")) is not None
    assert await checked.principal_of(signed(RSA_KEY, algorithm="RS256", kid="secret")) is None


@pytest.mark.parametrize("given", [True, False], ids=["given", "published"])
async def test_a_token_whose_algorithm_is_for_another_kind_of_key_is_refused(issuer: Issuer, given: bool) -> None:
    issuer.body = json.dumps({"keys": [published()]}).encode()
    algorithms = ["RS256", "ES256", "EdDSA"]
    known = JwtTokens(issuer=ISSUER, audience=AUDIENCE, key=pem(RSA_KEY), algorithms=algorithms)
    checked = known if given else tokens(issuer, algorithms=algorithms)
    assert await checked.principal_of(signed(KEY, algorithm="ES256")) is None
    assert await checked.principal_of(signed(RSA_KEY, algorithm="RS256")) is not None


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (PUBLIC_PEM, "is a key for ES256, and the allowed algorithms are RS256"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "is a key for ES384, and"),
        (pem(dsa.generate_private_key(2_048)), "is a key for no algorithm that can be allowed"),
    ],
)
def test_a_given_key_that_fits_no_allowed_algorithm_is_refused_before_the_first_token(key: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        JwtTokens(issuer=ISSUER, audience=AUDIENCE, key=key, algorithms=["RS256"])
