"""Bedrock: requests with an AWS signature, with keys from the environment, or with a bearer token."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.errors import UsageError
from callgate.models._aws import AwsSigner
from callgate.models._credential_redaction import SecretRedactor
from callgate.models._sigv4 import AwsKeys, sigv4_headers
from callgate.models.http_transport import OutgoingRequest, Retries
from callgate.models.providers import model
from callgate.testing import ManualClock, Raw, Reply, ScriptedServer
from tests.models.aws_frames import event
from tests.models.decoding import finished, text_of
from tests.models.http_requests import ask

KEYS = AwsKeys(access_key="AKIDEXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
AT_NS = 1_440_938_160 * 1_000_000_000
ENVIRON = {
    "AWS_ACCESS_KEY_ID": KEYS.access_key,
    "AWS_SECRET_ACCESS_KEY": KEYS.secret_key,
    "AWS_SESSION_TOKEN": "lent-for-a-while",
    "AWS_REGION": "eu-west-1",
}
HELLO = [
    Raw(event("messageStart", {"role": "assistant"})),
    Raw(event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello"}})),
    Raw(event("contentBlockStop", {"contentBlockIndex": 0})),
    Raw(event("messageStop", {"stopReason": "end_turn"})),
]
STREAM = {"content-type": "application/vnd.amazon.eventstream"}


def signature(headers: dict[str, str]) -> str:
    return headers["authorization"].rpartition("Signature=")[2]


def test_a_minimal_request_has_the_signature_published_by_aws() -> None:
    """AWS publishes this example: a request with only a host and a date."""
    headers = sigv4_headers("GET", "https://example.amazonaws.com/", {}, b"", keys=KEYS, region="us-east-1", service="service", at_ns=AT_NS)
    assert headers == {
        "x-amz-date": "20150830T123600Z",
        "authorization": (
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, "
            "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        ),
    }


def by_amazons_library(method: str, url: str, headers: dict[str, str], body: bytes, token: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    auth = pytest.importorskip("botocore.auth", reason="Amazon's library is a peer for tests only")
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest(method=method, url=url, data=body, headers=headers)
    credentials = Credentials(KEYS.access_key, KEYS.secret_key, token or None)
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_: datetime.fromtimestamp(AT_NS // 10**9, UTC))
    auth.SigV4Auth(credentials, "bedrock", "us-east-1").add_auth(request)
    return request.headers


NAMES = st.text("abcdefghijklmnop0123456789.:-/ ~é", min_size=1, max_size=24).filter(lambda name: name.strip("."))


@settings(max_examples=60, deadline=None)
@given(
    model_name=NAMES,
    port=st.sampled_from(["", ":443", ":8443"]),
    query=st.sampled_from(["", "?b=2&a=1", "?a=1&a=0", "?x"]),
    body=st.binary(max_size=40),
    token=st.sampled_from(["", "lent"]),
)
def test_every_signature_equals_the_one_made_by_the_aws_library(model_name: str, port: str, query: str, body: bytes, token: str) -> None:
    """Botocore is the independent reference: model names with colons and slashes, ports, queries, bodies, session tokens."""
    url = f"https://bedrock-runtime.us-east-1.amazonaws.com{port}/model/{quote(model_name, safe='')}/converse{query}"
    headers = {"content-type": "application/json"}
    keys = AwsKeys(access_key=KEYS.access_key, secret_key=KEYS.secret_key, session_token=token)
    ours = sigv4_headers("POST", url, headers, body, keys=keys, region="us-east-1", service="bedrock", at_ns=AT_NS)
    with pytest.MonkeyPatch.context() as patch:
        theirs = by_amazons_library("POST", url, headers, body, token, patch)
    assert theirs["X-Amz-Date"] == ours["x-amz-date"]
    assert theirs["Authorization"] == ours["authorization"]


async def test_a_bedrock_request_is_signed_and_its_stream_is_read() -> None:
    async with ScriptedServer([Reply(turn=HELLO, headers=STREAM)]) as server:
        of = model("bedrock:anthropic.claude-x-v2:0", base_url=server.url.removesuffix("/v1"), environ=ENVIRON)
        assert text_of(await ask(of)) == "Hello"
        await of.close()
        received = server.requests[0]
    assert received.path == "/model/anthropic.claude-x-v2%3A0/converse-stream"
    assert "AKIDEXAMPLE/" in received.headers["authorization"]
    assert "/eu-west-1/bedrock/aws4_request" in received.headers["authorization"]
    assert received.headers["x-amz-security-token"] == "lent-for-a-while"
    at = datetime.strptime(received.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    again = sigv4_headers(
        "POST",
        f"http://{received.headers['host']}{received.path}",
        {"content-type": received.headers["content-type"]},
        received.body,
        keys=AwsKeys(access_key=KEYS.access_key, secret_key=KEYS.secret_key, session_token="lent-for-a-while"),
        region="eu-west-1",
        service="bedrock",
        at_ns=int(at.timestamp()) * 10**9,
    )
    assert again["authorization"] == received.headers["authorization"]


async def test_a_bearer_token_takes_precedence_over_access_keys() -> None:
    environ = {**ENVIRON, "AWS_BEARER_TOKEN_BEDROCK": "bedrock-api-key-1"}
    async with ScriptedServer([Reply(turn=HELLO, headers=STREAM)] * 2) as server:
        for given in ({"environ": environ}, {"environ": ENVIRON, "api_key": "bedrock-api-key-1"}):
            of = model("bedrock:m", base_url=server.url, **given)
            await ask(of)
            await of.close()
    assert [received.headers["authorization"] for received in server.requests] == ["Bearer bedrock-api-key-1"] * 2
    assert "x-amz-date" not in server.requests[0].headers


async def test_a_refusal_is_reported_without_credentials() -> None:
    """Error messages of AWS repeat the signed headers, including the session token."""
    said = f"no match: x-amz-security-token:{ENVIRON['AWS_SESSION_TOKEN']} {KEYS.access_key} {KEYS.secret_key}"
    async with ScriptedServer([Reply(turn=[Raw(said.encode())], status=403, headers={"content-type": "text/plain"})]) as server:
        of = model("bedrock:m", base_url=server.url, environ=ENVIRON, retries=Retries(max_retries=0))
        fault = finished(await ask(of)).fault
        await of.close()
    assert fault is not None
    assert "AWS_ACCESS_KEY_ID" in fault.message
    assert not any(value in fault.message + repr(of) for value in (KEYS.access_key, KEYS.secret_key, ENVIRON["AWS_SESSION_TOKEN"]))


def test_each_attempt_is_signed_with_its_own_time() -> None:
    """A signature is valid for minutes, and a retry may be later than that."""
    clock = ManualClock(AT_NS)
    signer = AwsSigner(KEYS, "us-east-1", clock)
    request = OutgoingRequest(url="https://example.amazonaws.com/", body=b"", headers={}, redactor=SecretRedactor(), sign=signer)
    first = signer(request)
    clock.advance(600)
    second = signer(request)
    assert (first["x-amz-date"], second["x-amz-date"]) == ("20150830T123600Z", "20150830T124600Z")
    assert signature(dict(first)) != signature(dict(second))


async def test_a_retried_request_is_signed_again() -> None:
    async with ScriptedServer([Reply(status=503), Reply(turn=HELLO, headers=STREAM)]) as server:
        of = model("bedrock:m", base_url=server.url, environ=ENVIRON, retries=Retries(base_s=0.0))
        assert text_of(await ask(of)) == "Hello"
        await of.close()
    assert all(re.fullmatch(r"[0-9a-f]{64}", signature(dict(received.headers))) for received in server.requests)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"AWS_REGION": "us-east-1"}, "AWS_BEARER_TOKEN_BEDROCK, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY"),
        ({"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY is not"),
        ({"AWS_REGION": "us-east-1", "AWS_SECRET_ACCESS_KEY": "a"}, "AWS_ACCESS_KEY_ID is not"),
        ({"AWS_BEARER_TOKEN_BEDROCK": "t"}, "Set AWS_REGION"),
        ({"AWS_BEARER_TOKEN_BEDROCK": "t", "AWS_REGION": "x@evil.example/"}, "is not a region"),
        ({"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "BEDROCK_BASE_URL": "http://127.0.0.1:1"}, "Set AWS_REGION"),
    ],
)
def test_missing_or_invalid_aws_settings_are_named(environ: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        model("bedrock:m", environ=environ)


def test_the_region_is_read_from_the_base_url() -> None:
    environ = {key: value for key, value in ENVIRON.items() if key != "AWS_REGION"}
    of = model("bedrock:m", base_url="https://bedrock-runtime.ap-south-1.amazonaws.com", environ=environ)
    request = OutgoingRequest(url="https://bedrock-runtime.ap-south-1.amazonaws.com/", body=b"", headers={}, redactor=SecretRedactor())
    assert of._signer is not None
    assert "/ap-south-1/bedrock/" in of._signer(request)["authorization"]
