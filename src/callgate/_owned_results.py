"""Store whole results so that only the principal whose call made one can read it.

A blob store has no owners, and stores the same bytes once for everybody. Therefore each owner has a mark in the same store: a small blob
that names the owner and the hash of the result. A mark begins with a byte that no text has, so that no tool's result is one. Knows nothing
of tools and calls.
"""

from __future__ import annotations

import hashlib

from callgate.protocols import BlobStore

__all__ = ["owned_result", "store_result"]


def store_result(blobs: BlobStore, result: bytes, principal: str) -> str:
    """Store a result for its principal, and return its hash. An empty principal is nobody in particular, and gets no mark."""
    digest = blobs.put(result)
    if principal:
        blobs.put(_mark(digest, principal))
    return digest


def owned_result(blobs: BlobStore, digest: str, principal: str) -> bytes | None:
    """Return a result if it belongs to the principal, else None. An empty principal reads all results: where nobody is named, nobody else
    is kept out.
    """
    if principal and blobs.get(hashlib.sha256(_mark(digest, principal)).hexdigest()) is None:
        return None
    return blobs.get(digest)


def _mark(digest: str, principal: str) -> bytes:
    return b"\xff" + f"result {digest} of {principal}".encode("utf-8", "surrogatepass")
