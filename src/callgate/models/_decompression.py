"""Split a response body into chunks of bounded size, and decompress gzip as it arrives.

Stands apart from the transport because a few compressed bytes may expand to gigabytes. Yields to the event loop between chunks, so that
deadlines pass and other tasks run. Knows no request and no limit on the body.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator

__all__ = ["decompress_gzip", "split_chunks"]

_CHUNK_BYTES = 65_536
"""Maximum size of a chunk."""
_COMPRESSED_CHUNK_BYTES = 16_384
"""The maximum size of compressed input per step. It is small because zlib copies the bytes after a gzip member."""
_GZIP_WBITS = 31
_GZIP_FIRST_BYTE = 0x1F
"""The first byte of every gzip member; other bytes after a member are padding."""


async def split_chunks(chunks: AsyncIterator[bytes], size: int = _CHUNK_BYTES) -> AsyncGenerator[bytes, None]:
    """Yield the same bytes in chunks of at most `size` bytes."""
    async for chunk in chunks:
        yield chunk[:size]
        for start in range(size, len(chunk), size):
            await asyncio.sleep(0)
            yield chunk[start : start + size]


async def decompress_gzip(compressed: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the decompressed bytes of one or several gzip members; ignore what follows the last.

    Raises:
        zlib.error: The data is not gzip, or ends within a member.
    """
    decompressor = zlib.decompressobj(wbits=_GZIP_WBITS)
    started = False
    async for data in split_chunks(compressed, _COMPRESSED_CHUNK_BYTES):
        while data:
            if decompressor.eof:
                if data[0] != _GZIP_FIRST_BYTE:
                    return
                decompressor = zlib.decompressobj(wbits=_GZIP_WBITS)
            started = True
            chunk = decompressor.decompress(data, _CHUNK_BYTES)
            while chunk:
                yield chunk
                if decompressor.unconsumed_tail:
                    await asyncio.sleep(0)
                chunk = decompressor.decompress(decompressor.unconsumed_tail, _CHUNK_BYTES)
            data = decompressor.unused_data
    if started and not decompressor.eof:
        raise zlib.error("the gzip data is incomplete")
