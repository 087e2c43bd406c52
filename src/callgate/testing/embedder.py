"""An embedder without a model: texts that share parts of words have similar vectors.

Returns the same vectors on every machine. It does not know meanings, but it finds `reimbursed` for `reimbursement`,
which a search for whole words does not find.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

__all__ = ["HashedEmbedder"]

_PIECE = 4


class HashedEmbedder:
    """Counts the sequences of four characters in each word of a text.

    Args:
        name: See `callgate.memory.Embedder`.
        dimension: The number of counters. With more counters, fewer different sequences share one.
    """

    def __init__(self, name: str = "hashed", dimension: int = 512) -> None:
        self.name = name
        self.dimension = dimension
        self.asked: list[str] = []
        """Every text that this embedder was called with, in order."""

    def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        self.asked += texts
        return [self._count_pieces(text) for text in texts]

    def _count_pieces(self, text: str) -> list[float]:
        counters = [0.0] * self.dimension
        for word in text.lower().split():
            padded = f" {word} "
            for at in range(max(1, len(padded) - _PIECE + 1)):
                piece = padded[at : at + _PIECE].encode("utf-8", "replace")
                counters[int.from_bytes(hashlib.sha256(piece).digest()[:4], "big") % self.dimension] += 1.0
        return counters
