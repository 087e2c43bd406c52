"""What a body is behind gzip, as it comes in.

Apart from the transport because it is the one place where a few bytes may stand for gigabytes. Knows no request and no limit of a body.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator

__all__ = ["unpacked"]

_PIECE_BYTES = 262_144
"""The most that is unpacked at a time."""
_GZIP = 31
_MEMBER = 0x1F
"""What every member of a gzip body begins with; what follows the last may be padding."""


async def unpacked(packed: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The body behind gzip, in pieces of a bounded size: of one member or several, and nothing of what follows the last.

    Raises:
        zlib.error: It is no gzip.
    """
    unpack = zlib.decompressobj(wbits=_GZIP)
    async for data in packed:
        while data:
            if unpack.eof:
                if data[0] != _MEMBER:
                    return
                unpack = zlib.decompressobj(wbits=_GZIP)
            piece = unpack.decompress(data, _PIECE_BYTES)
            while piece:
                yield piece
                piece = unpack.decompress(unpack.unconsumed_tail, _PIECE_BYTES)
            data = unpack.unused_data
