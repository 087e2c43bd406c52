"""Pass a request on to the gateway that holds its session, or the request that it continues, and pass its response back.

The other gateway authenticates the client again, so nothing is trusted between gateways but the sealed id. A request is passed on once.
One that is silent is asked whether it is alive, see `replica_liveness.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from callgate.gateway._http.incoming_request import IncomingRequest
from callgate.gateway._http.replica_liveness import ReplicaLiveness
from callgate.gateway._http.request_checks import RefusedRequest
from callgate.gateway._http.streams import Receive, Send, event_of, wait_for_disconnect
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, RpcError, UnreadableMessage, error_answer, read_message
from callgate.models._connection_closing import close_without_waiting

__all__ = ["FORWARDED", "ReplicaForwarding"]

FORWARDED = b"x-callgate-forwarded"
_OF_ONE_HOP = frozenset({b"host", b"content-length", b"connection", b"transfer-encoding", b"keep-alive", b"date", b"server"})
_CONNECT_S = 5.0
_LONGEST_S = 3_600.0
"""Seconds of silence of another gateway that is alive: its own limits of calls and streams end first."""


class ReplicaForwarding:
    """The connections of one gateway to the others."""

    def __init__(self) -> None:
        import httpx2  # only several gateways need it

        self._unreachable: type[Exception] = httpx2.HTTPError
        self._not_sent: tuple[type[Exception], ...] = (httpx2.ConnectError, httpx2.ConnectTimeout)
        self._timeout = httpx2.Timeout
        limits = httpx2.Limits(max_connections=1_000, max_keepalive_connections=100)
        self._client: Any = httpx2.AsyncClient(timeout=httpx2.Timeout(_LONGEST_S, connect=_CONNECT_S), limits=limits, trust_env=False)
        close_without_waiting(self._client)
        self._liveness = ReplicaLiveness()

    async def forward(self, address: str, request: IncomingRequest, body: bytes, silence_s: float = _LONGEST_S) -> None:
        """Send a request to `address`, and its response to the client, until the client goes away.

        Args:
            silence_s: Seconds of silence after which the other gateway counts as unreachable.

        Raises:
            RefusedRequest: The other gateway cannot be reached, or is not alive any more.
        """
        response = _ForwardedResponse(request.send)
        try:
            await self._pass_while_alive(address, self._pass(address, request, body, response, silence_s), request.receive)
        except (self._unreachable, _ReplicaSilent) as error:
            refused = _refusal(_message_in(body), sent=not isinstance(error, self._not_sent))
            if not response.started:
                raise refused from error
            await response.end(refused)

    async def _pass_while_alive(self, address: str, passes: Coroutine[Any, Any, None], receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        passing = loop.create_task(passes)
        gone = loop.create_task(wait_for_disconnect(receive))
        silent = loop.create_task(self._liveness.wait_until_silent(address))
        try:
            await asyncio.wait((passing, gone, silent), return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
            elif silent.done():
                silent.result()
                raise _ReplicaSilent
        finally:
            for task in (passing, gone, silent):
                task.cancel()

    async def _pass(self, address: str, request: IncomingRequest, body: bytes, response: _ForwardedResponse, silence_s: float) -> None:
        sent = [(name, value) for name, value in request.headers.items() if name not in _OF_ONE_HOP] + [(FORWARDED, b"1")]
        timeout = self._timeout(silence_s, connect=_CONNECT_S)
        passed = self._client.build_request(request.method, address, headers=sent, content=body, timeout=timeout)
        received = await self._client.send(passed, stream=True)
        try:
            await response.send(received)
        finally:
            await received.aclose()

    async def close(self) -> None:
        await self._liveness.close()
        await self._client.aclose()


class _ReplicaSilent(Exception):
    """The other gateway is not alive."""


class _ForwardedResponse:
    """The response to the client."""

    def __init__(self, send: Send) -> None:
        self.started = False
        self._send = send
        self._has_events = False

    async def send(self, received: Any) -> None:
        """Send what another gateway answers."""
        kept = [(name.lower(), value) for name, value in received.headers.raw if name.lower() not in _OF_ONE_HOP]
        self._has_events = received.headers.get("content-type", "").startswith("text/event-stream")
        self.started = True
        await self._send({"type": "http.response.start", "status": received.status_code, "headers": kept})
        async for part in received.aiter_raw():
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})

    async def end(self, refused: RefusedRequest) -> None:
        """End a response that is not complete: an event stream with the error, whatever else by closing the connection."""
        if self._has_events:
            last = b""
            if refused.request_id is not None:
                last = b"\r\n\r\n" + event_of(error_answer(refused.request_id, RpcError(refused.code, refused.message)))
            await self._send({"type": "http.response.body", "body": last})


def _refusal(message: Message, *, sent: bool) -> RefusedRequest:
    """Return the refusal of a message.

    Args:
        sent: Whether the other gateway may have received the message. A call that it continues or answers ran there before.
    """
    params = message.get("params")
    continues = isinstance(params, dict) and "requestState" in params
    if message.get("method") == "tools/call" and not sent and not continues:
        ran = "The call was not sent to it and has not run."
    elif message.get("method", "") == "tools/call" or not message.keys().isdisjoint(("result", "error")):
        ran = "The call may have taken effect: its outcome is in the journal."
    else:
        ran = "This request has called no tool."
    return RefusedRequest(
        502,
        f"The gateway that holds this session or request cannot be reached. {ran}"
        " Begin a new session, or make the request again without its state.",
        INTERNAL_ERROR,
        request_id=message.get("id") if "method" in message else None,
    )


def _message_in(body: bytes) -> Message:
    with suppress(UnreadableMessage):
        return read_message(body)
    return {}
