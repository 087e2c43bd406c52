"""Connect a TCP socket to a host that may have several addresses.

The next address is tried when one has refused or has not answered soon, so that an address that leads nowhere costs little. Knows neither
TLS nor HTTP.

Source:
    RFC 8305, "Happy Eyeballs Version 2", sections 4 and 5: the order of the addresses and the delay between attempts.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from itertools import chain, zip_longest
from typing import Any, Final

__all__ = ["connect_tcp"]

_NEXT_ATTEMPT_S: Final = 0.25
_Address = tuple[int, tuple[Any, ...]]
"""An address family, and an address of it as `socket.connect` takes it."""


async def connect_tcp(host: str, port: int) -> socket.socket:
    """Return a connected socket. Has no time limit of its own.

    Raises:
        OSError: The name has no address, or no address could be connected to; the error of the last attempt.
    """
    addresses = deque(await _addresses(host, port))
    attempts: set[asyncio.Task[socket.socket]] = set()
    last: BaseException = OSError(f"{host} has no address")
    try:
        while addresses or attempts:
            if addresses:
                attempts.add(asyncio.create_task(_connect(addresses.popleft())))
            await asyncio.wait(attempts, timeout=_NEXT_ATTEMPT_S if addresses else None, return_when=asyncio.FIRST_COMPLETED)
            for attempt in [one for one in attempts if one.done()]:
                attempts.discard(attempt)
                if (error := attempt.exception()) is None:
                    return attempt.result()
                last = error
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_close_connected)
    raise last


async def _addresses(host: str, port: int) -> list[_Address]:
    """Return the addresses of a host in the order of the attempts: families take turns, beginning with the resolver's first."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families: dict[int, list[_Address]] = {}
    for family, _, _, _, place in found:
        families.setdefault(family, []).append((family, place))
    return [address for address in chain.from_iterable(zip_longest(*families.values())) if address is not None]


async def _connect(address: _Address) -> socket.socket:
    family, place = address
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connected, place)
    except BaseException:
        connected.close()
        raise
    return connected


def _close_connected(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that succeeded although it was given up."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
