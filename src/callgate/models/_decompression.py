"""A body in pieces of a bounded size, and what it is behind gzip, as it comes in.

Apart from the transport because it is the one place where a few bytes may stand for gigabytes. Between two pieces of what arrived at once
the event loop gets the turn, so that deadlines pass and others go on. Knows no request and no limit of a body.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator

__all__ = ["decompress_gzip", "split_chunks"]

_PIECE_BYTES = 65_536
"""The most that is given, or unpacked, at a time."""
_PACKED_BYTES = 16_384
"""The most that is unpacked from at a time: what follows a member is copied."""
_GZIP = 31
_MEMBER = 0x1F
"""What every member of a gzip body begins with; what follows the last may be padding."""


async def split_chunks(chunks: AsyncIterator[bytes], size: int = _PIECE_BYTES) -> AsyncGenerator[bytes, None]:
    """The same bytes in pieces of at most `size`."""
    async for chunk in chunks:
        yield chunk[:size]
        for start in range(size, len(chunk), size):
            await asyncio.sleep(0)
            yield chunk[start : start + size]


async def decompress_gzip(packed: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The body behind gzip: of one member or several, and nothing of what follows the last.

    Raises:
        zlib.error: It is no gzip, or ends within a member.
    """
    unpack = zlib.decompressobj(wbits=_GZIP)
    begun = False
    async for data in split_chunks(packed, _PACKED_BYTES):
        while data:
            if unpack.eof:
                if data[0] != _MEMBER:
                    return
                unpack = zlib.decompressobj(wbits=_GZIP)
            begun = True
            piece = unpack.decompress(data, _PIECE_BYTES)
            while piece:
                yield piece
                if unpack.unconsumed_tail:
                    await asyncio.sleep(0)
                piece = unpack.decompress(unpack.unconsumed_tail, _PIECE_BYTES)
            data = unpack.unused_data
    if begun and not unpack.eof:
        raise zlib.error("its packed data ends before its end")
