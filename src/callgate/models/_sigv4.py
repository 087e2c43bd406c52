"""AWS Signature Version 4 as a pure function: keys, a request and a time in, headers out.

Stands apart from the transport, which only asks for new headers at each attempt, and from `_aws`, which reads the keys. Knows no service
and sends nothing.

Source: AWS, "Create a signed AWS API request".
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from msgspec import Struct

__all__ = ["AwsKeys", "sigv4_headers"]

_ALGORITHM = "AWS4-HMAC-SHA256"
_PORTS = {"https": ":443", "http": ":80"}


class AwsKeys(Struct, frozen=True, kw_only=True):
    """AWS credentials."""

    access_key: str
    secret_key: str
    session_token: str = ""
    """The session token of temporary credentials; empty for permanent ones."""

    def __repr__(self) -> str:
        return "<AwsKeys>"


def sigv4_headers(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, keys: AwsKeys, region: str, service: str, at_ns: int
) -> dict[str, str]:
    """Return the headers that authenticate a request and protect it against changes.

    Args:
        method: The HTTP method.
        url: The URL as it is sent, with its path encoded.
        headers: The headers to sign, exactly as they are sent; lower-case names, without `host`.
        body: The body as it is sent.
        keys: The credentials.
        region: The service's region.
        service: The service's signing name.
        at_ns: The time in UTC nanoseconds. A service accepts the signature for a few minutes after it.
    """
    time = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
    new_headers = {"x-amz-date": time} | ({"x-amz-security-token": keys.session_token} if keys.session_token else {})
    host, path, query = _canonical_url(url)
    all_headers = dict(sorted({**headers, **new_headers, "host": host}.items()))
    names = ";".join(all_headers)
    lines = [f"{name}:{' '.join(value.split())}" for name, value in all_headers.items()]
    canonical_request = "\n".join([method, path, query, *lines, "", names, hashlib.sha256(body).hexdigest()])
    scope = f"{time[:8]}/{region}/{service}/aws4_request"
    string_to_sign = "\n".join([_ALGORITHM, time, scope, hashlib.sha256(canonical_request.encode()).hexdigest()])
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, string_to_sign).hex()
    return {
        **new_headers,
        "authorization": f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}",
    }


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _canonical_url(url: str) -> tuple[str, str, str]:
    """Return host, path and query in the form that is signed.

    The path is percent-encoded once more than in the request, and the query is sorted.
    """
    scheme, _, rest = url.partition("#")[0].partition("://")
    rest, _, query = rest.partition("?")
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2].lower().removesuffix(_PORTS.get(scheme.lower(), "\0"))
    sorted_query = sorted(tuple(pair.partition("=")[::2]) for pair in query.split("&") if pair)
    return host, quote(slash + path or "/", safe="/~"), "&".join(f"{name}={value}" for name, value in sorted_query)
