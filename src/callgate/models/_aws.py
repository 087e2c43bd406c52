"""What Bedrock wants to know of who asks: keys and a region from the environment, and a signature on each attempt.

Reads only the variables that Amazon's own tools read first; profiles, files and metadata services are theirs. Knows no API of a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate._clock import Clock, SystemClock
from callgate.errors import UsageError
from callgate.models._sigv4 import AwsKeys, sigv4_headers
from callgate.models.http import OutgoingRequest

__all__ = ["AwsSigner", "keys_from_environment", "region_from_environment"]

_SERVICE = "bedrock"
_HOST = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
_SIGNED = ("content-type",)
"""Of the request's own headers: others may be changed on the way."""


class AwsSigner:
    """Signs each attempt to send a request.

    Args:
        keys: Who asks.
        region: Where.
        clock: The time that is signed.
    """

    def __init__(self, keys: AwsKeys, region: str, clock: Clock | None = None) -> None:
        self._keys = keys
        self._region = region
        self._clock = clock or SystemClock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return tuple(filter(None, (self._keys.access_key, self._keys.secret_key, self._keys.session_token)))

    def __call__(self, request: OutgoingRequest) -> Mapping[str, str]:
        headers = {name: request.headers[name] for name in _SIGNED if name in request.headers}
        at_ns = self._clock.wall_ns()
        return sigv4_headers(
            request.method, request.url, headers, request.body, keys=self._keys, region=self._region, service=_SERVICE, at_ns=at_ns
        )


def keys_from_environment(environ: Mapping[str, str]) -> AwsKeys | None:
    """The keys in the environment; None if there are none.

    Raises:
        UsageError: There is only half of them.
    """
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    access_key, secret_key = (environ.get(name, "").strip() for name in names)
    if bool(access_key) != bool(secret_key):
        there, missing = names if access_key else names[::-1]
        raise UsageError(f"{there} is set and {missing} is not; both are needed to sign. Set {missing} as well.")
    token = environ.get("AWS_SESSION_TOKEN", "").strip()
    return AwsKeys(access_key=access_key, secret_key=secret_key, session_token=token) if access_key else None


def region_from_environment(environ: Mapping[str, str], url: str = "") -> str:
    """The region that is set, or the one in Bedrock's address.

    Raises:
        UsageError: There is neither.
    """
    found = _HOST.search(url)
    region = environ.get("AWS_REGION", "").strip() or environ.get("AWS_DEFAULT_REGION", "").strip() or (found[1] if found else "")
    if not re.fullmatch(r"[a-z0-9-]+", region):
        said = f"AWS_REGION is '{region[:40]}', which is no region" if region else "Bedrock has its servers in regions, and none is named"
        raise UsageError(f"{said}. Set AWS_REGION, for example to us-east-1.")
    return region
