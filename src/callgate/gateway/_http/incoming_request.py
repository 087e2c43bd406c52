"""One HTTP request that was let in, and how its body is read within bounds. Knows no method of the protocol."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from callgate.gateway._http.request_checks import CLOSE, Headers, RefusedRequest
from callgate.gateway._http.simple_requests import SimpleBody
from callgate.gateway._http.streams import Receive, Send
from callgate.gateway._http_limits import HttpLimits
from callgate.gateway.principals import Principal

__all__ = ["IncomingRequest", "read_body"]


class IncomingRequest(Struct, frozen=True, eq=False):
    """A request, and the way back to its client."""

    method: str
    headers: Headers
    principal: Principal
    receive: Receive
    send: Send

    def text(self, header: bytes) -> str:
        """Return the value of a header; empty if it is not there."""
        return self.headers.get(header, b"").decode("latin-1")


async def read_body(receive: Receive, limits: HttpLimits) -> bytes:
    """Return the whole body of a request.

    Raises:
        RefusedRequest: The client has gone away, or the body is too large or takes too long.
    """
    if isinstance(receive, SimpleBody) and not receive.left_bytes:
        return receive.take()
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            while True:
                part = await receive()
                if part["type"] == "http.disconnect":
                    raise RefusedRequest(400, "The body is incomplete.", reason="body")
                parts.append(part.get("body", b""))
                size_bytes += len(parts[-1])
                if size_bytes > limits.body_bytes:
                    raise RefusedRequest(413, f"The body is larger than {limits.body_bytes} bytes. Send less at once.", headers=CLOSE)
                if not part.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise RefusedRequest(408, f"The body took more than {limits.body_timeout_s:g} s. Send it faster.", headers=CLOSE) from None
