"""Frame messages on a byte stream: a length of four bytes (big-endian), then the message. Larger frames are neither sent nor read.

For transports that are byte streams; queues do not need it. Must not know the content of a message.
"""

from __future__ import annotations

import asyncio

from callgate.remote.messages import Malformed

__all__ = ["frame", "read_frame"]

_HEAD = 4


def frame(body: bytes, most_bytes: int) -> bytes:
    """Return the frame of a message.

    Raises:
        ValueError: The message is larger than the limit.
    """
    if len(body) > most_bytes:
        raise ValueError(f"a message of {len(body):,} bytes is too large for this connection; {most_bytes:,} is the limit. Send less.")
    return len(body).to_bytes(_HEAD, "big") + body


async def read_frame(stream: asyncio.StreamReader, most_bytes: int) -> bytes:
    """Return the next message; wait for it without a time limit.

    Raises:
        Malformed: The announced length is above the limit. The message is not read.
        EOFError: The stream ended, before or within a frame.
        OSError: The connection broke.
    """
    size = int.from_bytes(await stream.readexactly(_HEAD), "big")
    if size > most_bytes:
        raise Malformed(f"A frame of {size:,} bytes was announced; {most_bytes:,} is the limit. Do both sides speak the same protocol?")
    return await stream.readexactly(size)
