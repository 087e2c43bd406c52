"""Messages over a stream: four bytes of length (big-endian), then the message. A frame above the bound is neither sent nor read.

For transports that are a stream of bytes; a queue needs none of it. Must not know what is in a message.
"""

from __future__ import annotations

import asyncio

from callgate.remote.messages import Malformed

__all__ = ["frame", "read_frame"]

_HEAD = 4


def frame(body: bytes, most_bytes: int) -> bytes:
    """`body` as it travels.

    Raises:
        ValueError: It is above the bound.
    """
    if len(body) > most_bytes:
        raise ValueError(f"a message of {len(body):,} bytes is too large for this connection; {most_bytes:,} is the limit. Send less.")
    return len(body).to_bytes(_HEAD, "big") + body


async def read_frame(stream: asyncio.StreamReader, most_bytes: int) -> bytes:
    """The next message; waits for it as long as it takes.

    Raises:
        Malformed: A length above the bound was announced. What follows it is not read.
        EOFError: The stream ended, before or within a frame.
        OSError: The connection broke.
    """
    size = int.from_bytes(await stream.readexactly(_HEAD), "big")
    if size > most_bytes:
        raise Malformed(f"A frame of {size:,} bytes was announced; {most_bytes:,} is the limit. Do both sides speak the same protocol?")
    return await stream.readexactly(size)
