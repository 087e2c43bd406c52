"""Several rankings of the same things as one, by reciprocal rank fusion: who stands far up in several comes first.

Only places count, because scores of different kinds cannot be compared. Pure, and exact: of equals the newest comes first, then the one
that was kept first.

Source:
    Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from callgate.memory.passages import FoundPassage

__all__ = ["fused"]

_FLATTENING: Final = 60
"""The paper's constant: how little the first places differ."""


def fused(rankings: Sequence[Mapping[int, FoundPassage]], limit: int) -> list[FoundPassage]:
    """The best of them, each once, with its new score; as the first ranking that has it shows it.

    Args:
        rankings: Each by the numbers of what was found, the best first.
        limit: How many at most.
    """
    scores: dict[int, float] = {}
    shown: dict[int, FoundPassage] = {}
    for ranking in rankings:
        for place, (number, found) in enumerate(ranking.items(), 1):
            scores[number] = scores.get(number, 0.0) + 1 / (_FLATTENING + place)
            shown.setdefault(number, found)
    best = sorted(scores, key=lambda number: (-scores[number], -shown[number].passage.at_ns, number))
    return [replace(shown[number], score=scores[number]) for number in best[: max(0, limit)]]
