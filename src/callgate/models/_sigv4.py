"""Sign a request as Amazon asks for it: Signature Version 4. Pure: keys, a request and a time in, headers out.

Stands apart from the transport, which only asks for a request's headers anew at each attempt, and from where keys come from. Must not know
which service is asked, nor send anything.

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
    """Who asks."""

    access_key: str
    secret_key: str
    session_token: str = ""
    """Of keys that were lent for a while; empty for lasting ones."""

    def __repr__(self) -> str:
        return "<AwsKeys>"


def sigv4_headers(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, keys: AwsKeys, region: str, service: str, at_ns: int
) -> dict[str, str]:
    """The headers to send along, so that the service knows who asks and that nothing was changed on the way.

    Args:
        method: Of the request.
        url: As it is sent: its path is encoded already.
        headers: To be sent exactly so; by lower-case names, without `host`.
        body: As it is sent.
        keys: Who asks.
        region: Of the service.
        service: The name that it signs under.
        at_ns: The time, UTC nanoseconds; a service takes it for some minutes.
    """
    time = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": time} | ({"x-amz-security-token": keys.session_token} if keys.session_token else {})
    host, path, query = _parts(url)
    all_headers = dict(sorted({**headers, **added, "host": host}.items()))
    names = ";".join(all_headers)
    lines = [f"{name}:{' '.join(value.split())}" for name, value in all_headers.items()]
    asked = "\n".join([method, path, query, *lines, "", names, hashlib.sha256(body).hexdigest()])
    scope = f"{time[:8]}/{region}/{service}/aws4_request"
    to_sign = "\n".join([_ALGORITHM, time, scope, hashlib.sha256(asked.encode()).hexdigest()])
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    signature = _hmac(key, to_sign).hex()
    return {**added, "authorization": f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"}


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _parts(url: str) -> tuple[str, str, str]:
    """Host as it is sent, and path and query as they are signed: the path encoded once more than it travels, the query sorted."""
    scheme, _, rest = url.partition("#")[0].partition("://")
    rest, _, query = rest.partition("?")
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2].lower().removesuffix(_PORTS.get(scheme.lower(), "\0"))
    sorted_query = sorted(tuple(pair.partition("=")[::2]) for pair in query.split("&") if pair)
    return host, quote(slash + path or "/", safe="/~"), "&".join(f"{name}={value}" for name, value in sorted_query)
