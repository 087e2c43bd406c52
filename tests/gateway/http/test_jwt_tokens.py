"""Signed tokens, with real keys and an issuer on loopback that publishes them."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from hashlib import sha256
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec.structs import replace

from callgate.errors import UsageError
from callgate.gateway._http import HttpApp, HttpServer
from callgate.gateway.jwt_tokens import JwtTokens
from callgate.gateway.principals import Principal
from callgate.gateway.tokens import IssuerUnavailable
from tests.gateway.http.conftest import EchoFronts
from tests.gateway.http.token_issuer import TokenIssuer
from tests.loopback_server import LoopbackServer

ISSUER, AUDIENCE = "https://issuer.example", "callgate"
KEY, OTHER_KEY = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
PUBLIC_PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class Issuer(LoopbackServer):
    """Publishes the public keys of `keys`; fails if `down`."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = {"one": KEY}
        self.down = False
        self.body = b""
        self.fetches = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.fetches += 1
        published = [
            json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())) | ({"kid": kid} if kid else {})
            for kid, key in self.keys.items()
        ]
        body = self.body or json.dumps({"keys": published}).encode()
        status = b"503 Down" if self.down else b"200 OK"
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer() as running:
        yield running


def tokens(issuer: Issuer, **more: Any) -> JwtTokens:
    return JwtTokens(issuer=ISSUER, audience=AUDIENCE, jwks_url=issuer.url, **more)


def claims(**more: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600, "sub": "alice", **more}


def signed(key: Any = KEY, kid: str = "one", algorithm: str = "ES256", **more: Any) -> str:
    present = {name: value for name, value in claims(**more).items() if value is not None}
    return jwt.encode(present, key, algorithm=algorithm, headers={"kid": kid} if kid else {})


def hs256_with_the_public_key() -> str:
    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    text = part({"alg": "HS256", "typ": "JWT", "kid": "one"}) + b"." + part(claims())
    return (text + b"." + base64.urlsafe_b64encode(hmac.digest(PUBLIC_PEM.encode(), text, sha256)).rstrip(b"=")).decode()


def tampered() -> str:
    head, _, signature = signed().split(".")
    return ".".join((head, signed(sub="root").split(".")[1], signature))


async def test_a_signed_token_names_its_principal(issuer: Issuer) -> None:
    alice = Principal(name="alice", tools=("a*",), parallel=3, scopes=())
    checked = tokens(issuer, principals=[alice, Principal(name="olga", role="operator")])
    end = float(int(time.time()) + 600)
    assert await checked.principal_of(signed(exp=end)) == replace(alice, expires_at=end + 30)
    assert (await checked.principal_of(signed(exp=10**400))) == replace(alice, expires_at=2**53 + 30)
    assert await checked.principal_of(signed(sub="somebody", exp=end)) == Principal(name="somebody", scopes=(), expires_at=end + 30)
    olga = await checked.principal_of(signed(sub="olga"))
    assert olga is not None
    assert olga.role == "operator"
    assert issuer.fetches == 1


INVALID: Mapping[str, tuple[Callable[[], str], str]] = {
    "expired": (lambda: signed(exp=time.time() - 60), "expired"),
    "too early": (lambda: signed(nbf=time.time() + 600), "not valid yet"),
    "for somebody else": (lambda: signed(aud="somebody"), "another audience"),
    "of somebody else": (lambda: signed(iss="https://other.example"), "another issuer"),
    "without end": (lambda: signed(exp=None), "missing"),
    "without audience": (lambda: signed(aud=None), "missing"),
    "without name": (lambda: signed(sub=None), "claim sub"),
    "with an empty name": (lambda: signed(sub=""), "claim sub"),
    "with a name of two lines": (lambda: signed(sub="a\nb"), "claim sub"),
    "signed by another key": (lambda: signed(OTHER_KEY), "signature"),
    "tampered": (tampered, "signature"),
    "unsigned": (lambda: signed("", algorithm="none"), "algorithm"),
    "signed with the public key": (hs256_with_the_public_key, "algorithm"),
    "of an unknown key": (lambda: signed(kid="two"), "kid"),
    "garbage": (lambda: "garbage", "no JWT, nor the token of a known principal"),
    "three parts": (lambda: "a.b.c", "no JWT, nor the token of a known principal"),
    "nested deeply": (lambda: f"{base64.urlsafe_b64encode(b'[' * 20_000).decode()}.b.c", "no JWT, nor the token of a known principal"),
    "with a huge number": (lambda: f"{base64.urlsafe_b64encode(b'9' * 10_000).decode()}.b.c", "no JWT, nor the token of a known principal"),
}


@pytest.mark.parametrize("name", INVALID)
async def test_a_token_that_is_not_valid_is_refused_and_the_log_says_why(
    issuer: Issuer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    make, told = INVALID[name]
    token = make()
    with caplog.at_level(logging.DEBUG):
        assert await tokens(issuer).principal_of(token) is None
    [record] = [record.getMessage() for record in caplog.records if record.name == "callgate.gateway"]
    assert told in record
    assert token not in caplog.text


async def test_the_client_is_not_told_what_is_wrong(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    app = HttpApp(EchoFronts(), tokens(issuer))
    async with HttpServer(app) as server, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        answers = [
            await client.get("/metrics", headers={"Authorization": f"Bearer {token}"}) for token in (tampered(), signed(aud="x"), "x")
        ]
        assert {answer.status_code for answer in answers} == {401}
        assert len({answer.text for answer in answers}) == 1
        assert (await client.get("/metrics", headers={"Authorization": f"Bearer {signed()}"})).status_code == 200


async def test_tokens_with_unknown_keys_do_not_make_the_gateway_ask_the_issuer_again_and_again(issuer: Issuer) -> None:
    checked = tokens(issuer)
    found = await asyncio.gather(*(checked.principal_of(signed(OTHER_KEY, kid=f"made-up-{n}")) for n in range(20)))
    assert (set(found), issuer.fetches) == ({None}, 1)
    assert await checked.principal_of(signed()) is not None
    assert issuer.fetches == 1


async def test_a_new_key_of_the_issuer_is_fetched(issuer: Issuer) -> None:
    checked = tokens(issuer, refetch_s=0)
    assert await checked.principal_of(signed()) is not None
    issuer.keys = {"two": OTHER_KEY}
    assert await checked.principal_of(signed(OTHER_KEY, kid="two")) is not None
    assert await checked.principal_of(signed()) is None


@pytest.mark.parametrize("published", ["", "one"])
@pytest.mark.parametrize("named", ["", "one"])
async def test_an_only_key_needs_no_name(issuer: Issuer, published: str, named: str) -> None:
    issuer.keys = {published: KEY}
    assert await tokens(issuer).principal_of(signed(kid=named)) is not None
    assert await tokens(issuer).principal_of(signed(OTHER_KEY, kid=named)) is None


async def test_of_several_keys_a_token_has_to_name_one(issuer: Issuer) -> None:
    issuer.keys = {"one": KEY, "two": OTHER_KEY}
    assert await tokens(issuer).principal_of(signed(kid="")) is None


async def test_without_the_issuer_known_keys_work_and_others_cannot_be_checked(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    checked, late = tokens(issuer, refetch_s=0), tokens(issuer)
    assert await checked.principal_of(signed()) is not None
    issuer.down = True
    assert await checked.principal_of(signed(OTHER_KEY, kid="two")) is None
    assert await checked.principal_of(signed()) is not None
    with pytest.raises(IssuerUnavailable):
        await late.principal_of(signed())
    assert "could not be fetched" in caplog.text


async def test_a_request_whose_token_cannot_be_checked_is_503(issuer: Issuer) -> None:
    issuer.down = True
    app = HttpApp(EchoFronts(), tokens(issuer))
    async with HttpServer(app) as server, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
        answer = await client.get("/metrics", headers={"Authorization": f"Bearer {signed()}"})
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert issuer.url not in answer.text


async def test_a_key_may_be_given_instead_of_an_address() -> None:
    checked = JwtTokens(issuer=ISSUER, audience=AUDIENCE, key=PUBLIC_PEM)
    found = await checked.principal_of(signed())
    assert found is not None
    assert (found.name, found.scopes) == ("alice", ())
    assert await checked.principal_of(hs256_with_the_public_key()) is None


# Where the keys are


@pytest.mark.parametrize("openid", [False, True], ids=["OAuth", "OpenID Connect"])
async def test_without_an_address_the_keys_are_where_the_metadata_of_the_issuer_say(openid: bool) -> None:
    with TokenIssuer(openid=openid) as issuer:
        checked = JwtTokens(issuer=issuer.url, audience=AUDIENCE, algorithms=["ES256"])
        found = await checked.principal_of(issuer.token(AUDIENCE, "a b"))
        assert found is not None
        assert (found.name, found.scopes) == ("ann", ("a", "b"))
        assert await checked.principal_of(issuer.token("somebody")) is None


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"issuer": "https://other.example"}, "are those of 'https://other.example'. Write the issuer exactly as they do"),
        ({"jwks_uri": None}, "the jwks_uri of its metadata 'None' is not a plain https address"),
        ({"jwks_uri": "http://keys.example/"}, "is not a plain https address"),
        ({"jwks_uri": "https://169.254.169.254/keys"}, "which is a link-local address, and the server is not. If that is right, give"),
    ],
)
async def test_metadata_that_cannot_be_trusted_lead_to_no_keys(
    metadata: Mapping[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with TokenIssuer(metadata=metadata) as issuer:
        with pytest.raises(IssuerUnavailable):
            await JwtTokens(issuer=issuer.url, audience=AUDIENCE, algorithms=["ES256"]).principal_of(issuer.token(AUDIENCE))
        assert told in caplog.text


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"keys": 5}', b'{"keys": [5]}', b'{"keys": []}', b"x" * 2_000_000], ids=len)
async def test_what_is_no_set_of_keys_leaves_tokens_unchecked(issuer: Issuer, body: bytes) -> None:
    issuer.body = body
    with pytest.raises(IssuerUnavailable):
        await tokens(issuer).principal_of(signed())


@pytest.mark.parametrize(
    "options",
    [
        {"issuer": "the issuer"},
        {"issuer": "http://id.example"},
        {"key": "x"},
        {"key": "x", "jwks_url": "https://a.example"},
        {"key": PUBLIC_PEM, "algorithms": ["HS256"]},
        {"jwks_url": "file:///etc/keys"},
        {"jwks_url": "http://id.example/keys"},
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        JwtTokens(**{"issuer": ISSUER, "audience": AUDIENCE, **options})
