"""AWS credentials and region from the environment, and a signer for requests to Bedrock.

Reads only the environment variables that Amazon's own tools read first; profiles, files and metadata services are not read. Knows no model
API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate._clock import Clock, SystemClock
from callgate.errors import UsageError
from callgate.models._sigv4 import AwsKeys, sigv4_headers
from callgate.models.http_transport import OutgoingRequest

__all__ = ["AwsSigner", "keys_from_environment", "region_from_environment"]

_SERVICE = "bedrock"
_BEDROCK_HOST = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
_SIGNED_HEADERS = ("content-type",)
"""The request's own headers that are signed; proxies may change others."""


class AwsSigner:
    """Signs each attempt to send a request.

    Args:
        keys: The credentials.
        region: The AWS region.
        clock: Gives the time that is signed.
    """

    def __init__(self, keys: AwsKeys, region: str, clock: Clock | None = None) -> None:
        self._keys = keys
        self._region = region
        self._clock = clock or SystemClock()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not be shown."""
        return tuple(filter(None, (self._keys.access_key, self._keys.secret_key, self._keys.session_token)))

    def __call__(self, request: OutgoingRequest) -> Mapping[str, str]:
        headers = {name: request.headers[name] for name in _SIGNED_HEADERS if name in request.headers}
        at_ns = self._clock.wall_ns()
        return sigv4_headers(
            request.method, request.url, headers, request.body, keys=self._keys, region=self._region, service=_SERVICE, at_ns=at_ns
        )


def keys_from_environment(environ: Mapping[str, str]) -> AwsKeys | None:
    """Return the AWS keys in the environment; None if there are none.

    Raises:
        UsageError: Only one of the two keys is set.
    """
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    access_key, secret_key = (environ.get(name, "").strip() for name in names)
    if bool(access_key) != bool(secret_key):
        present, missing = names if access_key else names[::-1]
        raise UsageError(f"{present} is set and {missing} is not; both are needed to sign. Set {missing} as well.")
    token = environ.get("AWS_SESSION_TOKEN", "").strip()
    return AwsKeys(access_key=access_key, secret_key=secret_key, session_token=token) if access_key else None


def region_from_environment(environ: Mapping[str, str], url: str = "") -> str:
    """Return the AWS region that is set, or the one in Bedrock's URL.

    Raises:
        UsageError: There is neither, or the value is not a region name.
    """
    found = _BEDROCK_HOST.search(url)
    region = environ.get("AWS_REGION", "").strip() or environ.get("AWS_DEFAULT_REGION", "").strip() or (found[1] if found else "")
    if not re.fullmatch(r"[a-z0-9-]+", region):
        said = f"AWS_REGION is '{region[:40]}', which is not a region name" if region else "Bedrock needs a region, and none is set"
        raise UsageError(f"{said}. Set AWS_REGION, for example to us-east-1.")
    return region
