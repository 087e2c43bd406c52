"""A passage store in memory, for tests and short-lived scripts."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence

from callgate.memory.passage import FoundPassage, Passage, PassageKind, PassageQuery
from callgate.memory.text_terms import asked_words, plain, tokens

__all__ = ["MemoryPassages"]

_SNIPPET_CHARS = 300
_PREFIX_CHARS = 3


class MemoryPassages:
    """A `PassageStore` in memory. Every search reads all passages."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Passage, ...]] = {}
        self._guard = threading.Lock()

    def keep(self, changes: Mapping[str, Sequence[Passage]]) -> None:
        with self._guard:
            for origin, passages in changes.items():
                self._kept.pop(origin, None)
                if passages:
                    self._kept[origin] = tuple(passages)

    def of(self, origin: str) -> list[Passage]:
        with self._guard:
            return list(self._kept.get(origin, ()))

    def search(self, query: PassageQuery) -> list[FoundPassage]:
        asked = [phrase for word in asked_words(query.text) if (phrase := tokens(word))]
        found = [
            FoundPassage(passage=passage, snippet=_snippet(passage.text, query.text), score=score)
            for passage in self._all_passages()
            if query.admits(passage) and (score := _score(passage, asked)) > 0
        ]
        found.sort(key=lambda one: (-one.score, -one.passage.at_ns))
        return found[: max(0, query.limit)]

    def files(self, workspace: str) -> dict[str, str]:
        return {one.path: one.stamp for one in self._all_passages() if one.kind == "file" and one.workspace == workspace}

    def count(self, kind: PassageKind, principal: str | None = None) -> int:
        return sum(one.kind == kind and principal in (None, one.principal) for one in self._all_passages())

    def trim(self, kind: PassageKind, principal: str, most: int) -> int:
        mine = sorted((one for one in self._all_passages() if one.kind == kind and one.principal == principal), key=lambda one: -one.at_ns)
        surplus = mine[most:]
        for passage in surplus:
            self.keep({passage.origin: [one for one in self.of(passage.origin) if one is not passage]})
        return len(surplus)

    def close(self) -> None:
        """Do nothing; the passages stay until the process ends."""

    def _all_passages(self) -> list[Passage]:
        with self._guard:
            return [passage for passages in self._kept.values() for passage in passages]


def _score(passage: Passage, asked: list[list[str]]) -> float:
    """Return the number of question words that the passage has, plus their frequency relative to its length."""
    words = tokens(passage.text) + [word for tag in passage.tags for word in tokens(tag)]
    counts = [_count(words, phrase) for phrase in asked]
    hits = sum(count > 0 for count in counts)
    return hits + sum(counts) / (1 + len(words)) if hits and math.isfinite(hits) else 0.0


def _count(words: list[str], phrase: list[str]) -> int:
    """Return how often the words of the phrase occur in this order.

    The last word also matches words that begin with it.
    """
    size = len(phrase)
    return sum(
        words[at : at + size - 1] == phrase[:-1] and _is_or_begins(words[at + size - 1], phrase[-1]) for at in range(len(words) - size + 1)
    )


def _is_or_begins(word: str, asked: str) -> bool:
    return word == asked or (len(asked) >= _PREFIX_CHARS and word.startswith(asked))


def _snippet(text: str, query: str) -> str:
    places = [at for word in asked_words(query) if (at := text.lower().find(plain(word).lower())) >= 0]
    start = max(0, min(places, default=0) - _SNIPPET_CHARS // 3)
    end = start + _SNIPPET_CHARS
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
