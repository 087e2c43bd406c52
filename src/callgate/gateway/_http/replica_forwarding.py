"""Pass a request on to the gateway that holds its session, or the request that it continues, and pass its response back.

The other gateway authenticates the client again, so nothing is trusted between gateways but the sealed id. A request is passed on once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from callgate.gateway._http.request_checks import Headers, RefusedRequest
from callgate.gateway._http.streams import Receive, Send, wait_for_disconnect
from callgate.mcp._messages import INTERNAL_ERROR
from callgate.models._connection_closing import close_without_waiting

__all__ = ["FORWARDED", "ReplicaForwarding"]

FORWARDED = b"x-callgate-forwarded"
_OF_ONE_HOP = frozenset({b"host", b"content-length", b"connection", b"transfer-encoding", b"keep-alive", b"date", b"server"})
_CONNECT_S = 5.0
_LONGEST_S = 3_600.0
"""Seconds of silence of the other gateway: its own limits of calls and streams end first."""


class ReplicaForwarding:
    """The connections of one gateway to the others."""

    def __init__(self) -> None:
        import httpx2  # only several gateways need it

        self._unreachable: type[Exception] = httpx2.HTTPError
        self._timeout = httpx2.Timeout
        limits = httpx2.Limits(max_connections=1_000, max_keepalive_connections=100)
        self._client: Any = httpx2.AsyncClient(timeout=httpx2.Timeout(_LONGEST_S, connect=_CONNECT_S), limits=limits, trust_env=False)
        close_without_waiting(self._client)

    async def forward(
        self, address: str, method: str, headers: Headers, body: bytes, receive: Receive, send: Send, silence_s: float = _LONGEST_S
    ) -> None:
        """Send a request to `address`, and its response to the client, until the client goes away.

        Args:
            silence_s: Seconds of silence after which the other gateway counts as unreachable.

        Raises:
            RefusedRequest: The other gateway cannot be reached.
        """
        loop = asyncio.get_running_loop()
        passing = loop.create_task(self._pass(address, method, headers, body, send, silence_s))
        gone = loop.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait((passing, gone), return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            for task in (passing, gone):
                task.cancel()

    async def _pass(self, address: str, method: str, headers: Headers, body: bytes, send: Send, silence_s: float) -> None:
        sent = [(name, value) for name, value in headers.items() if name not in _OF_ONE_HOP] + [(FORWARDED, b"1")]
        timeout = self._timeout(silence_s, connect=_CONNECT_S)
        request = self._client.build_request(method, address, headers=sent, content=body, timeout=timeout)
        try:
            response = await self._client.send(request, stream=True)
        except self._unreachable as error:
            raise RefusedRequest(
                502,
                "The gateway that holds this session or request cannot be reached. If it ran a call, that may have happened: its outcome is"
                " in the journal. Begin a new session, or make the request again without its state.",
                INTERNAL_ERROR,
            ) from error
        try:
            kept = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _OF_ONE_HOP]
            await send({"type": "http.response.start", "status": response.status_code, "headers": kept})
            async for part in response.aiter_raw():
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()

    async def close(self) -> None:
        await self._client.aclose()
