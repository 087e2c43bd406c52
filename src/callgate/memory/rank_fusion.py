"""Combine several rankings by reciprocal rank fusion: entries that rank high in several rankings come first.

Uses ranks only, because scores of different kinds cannot be compared. Pure and deterministic: entries with equal scores
are sorted newest first, then in the order in which they were stored.

Source:
    Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods",
    SIGIR 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from callgate.memory.passage import FoundPassage

__all__ = ["fuse_rankings"]

_FLATTENING: Final = 60
"""The paper's constant k; a larger one makes the first ranks differ less."""


def fuse_rankings(rankings: Sequence[Mapping[int, FoundPassage]], limit: int) -> list[FoundPassage]:
    """Return the best entries, without duplicates and with their combined scores.

    The snippet of an entry is taken from the first ranking that contains it.

    Args:
        rankings: Each ranking as a mapping from row number to entry, best first.
        limit: The maximum number of entries.
    """
    scores: dict[int, float] = {}
    shown: dict[int, FoundPassage] = {}
    for ranking in rankings:
        for place, (number, found) in enumerate(ranking.items(), 1):
            scores[number] = scores.get(number, 0.0) + 1 / (_FLATTENING + place)
            shown.setdefault(number, found)
    best = sorted(scores, key=lambda number: (-scores[number], -shown[number].passage.at_ns, number))
    return [replace(shown[number], score=scores[number]) for number in best[: max(0, limit)]]
