"""A connection through the proxy that the environment names, made by httpx2, which implements the kinds of proxies.

Its transport is used without its client, which would log the whole address, and an address may contain a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from callgate.mcp._connection_pool import KEEP_ALIVE_S
from callgate.models._connection_closing import close_without_waiting
from callgate.models._connection_reuse import check_before_reuse
from callgate.models._http_clients import create_client, import_httpx2, tls_context

if TYPE_CHECKING:
    import httpx2

__all__ = ["ProxiedConnection", "needs_proxy"]


def needs_proxy(url: httpx2.URL) -> bool:
    """Return whether the environment names a proxy for an address.

    Raises:
        UsageError: An environment variable for proxies or certificates cannot be used.
    """
    client = _new_client()
    return client._transport_for_url(url) is not client._transport


class ProxiedConnection:
    """Implements `PooledConnection`.

    Args:
        connect_s: Seconds for the connection to the proxy.

    Raises:
        UsageError: An environment variable for proxies or certificates cannot be used.
    """

    def __init__(self, connect_s: float) -> None:
        self._client = _new_client()
        self._extensions = {"timeout": {"connect": connect_s, "read": None, "write": None, "pool": None}}

    async def send(self, method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes) -> _ProxiedResponse:
        request = import_httpx2().Request(method, url, headers=headers, content=body, extensions=self._extensions)
        return _ProxiedResponse(await self._client._transport_for_url(url).handle_async_request(request))

    async def close(self) -> None:
        await self._client.aclose()


class _ProxiedResponse:
    """Implements `PooledResponse`."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._response = response
        self._chunks: Any = response.stream.__aiter__()  # type: ignore[union-attr]

    async def read_chunk(self) -> bytes:
        return bytes(await anext(self._chunks, b""))

    async def release(self) -> None:
        await self._chunks.aclose()
        await self._response.aclose()


def _new_client() -> httpx2.AsyncClient:
    library = import_httpx2()
    limits = library.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_S)
    client: httpx2.AsyncClient = create_client(lambda: library.AsyncClient(limits=limits, verify=tls_context()))
    close_without_waiting(client)
    check_before_reuse(client)
    return client
