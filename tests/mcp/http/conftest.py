from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mcp.http.sdk_server import SdkServer


@pytest.fixture(scope="module", autouse=True)
def _no_proxies() -> Iterator[None]:
    """Remove proxy variables from the environment, so that requests go straight to the test's server."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patched.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def sdk_server() -> Iterator[SdkServer]:
    """A server made with the official SDK, which speaks both eras at one address."""
    with SdkServer() as server:
        yield server


@pytest.fixture(params=["direct", "proxied"])
def each_connection(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with both kinds of connections: our own, and the one for proxies, which works without a proxy, too."""
    monkeypatch.setattr("callgate.mcp._http_exchange.needs_proxy", lambda url: request.param == "proxied")
