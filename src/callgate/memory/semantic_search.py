"""Answer questions by words and by meaning, and embed passages in the background.

Texts are stored before they are embedded, and texts without vectors are found by words, so a failing embedder only makes the search by
meaning incomplete. Passages and questions are redacted before an embedder gets them. A text that repeatedly cannot be embedded is found by
words only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from callgate._terminal_text import one_line
from callgate.errors import CallgateError
from callgate.memory.background_thread import BackgroundThread
from callgate.memory.database import Database
from callgate.memory.embedder_calls import EmbedderCalls
from callgate.memory.embedder_protocol import Embedder, EmbedderFailed
from callgate.memory.memory_limits import LOGGED_CHARS, MemoryLimits
from callgate.memory.passage import FoundPassage, PassageQuery
from callgate.memory.passage_table import TablePassages
from callgate.memory.passage_vectors import PendingVector, Vectors
from callgate.memory.rank_fusion import fuse_rankings

__all__ = ["SemanticSearch"]

log = logging.getLogger("callgate")
_DEPTH: Final = 100
"""How many entries of each ranking are combined."""
_PROBE: Final = "What does this text mean?"
"""A text that is embedded to find out whether the embedder fails for all texts or only for some."""

Made = list[tuple[PendingVector, bytes]]


class SemanticSearch:
    """Search by words and by meaning combined.

    Args:
        hide: Redact a text.
        anew: Whether to drop the vectors of another embedder instead of raising.

    Raises:
        UsageError: The file has vectors of another embedder.
    """

    def __init__(
        self,
        database: Database,
        table: TablePassages,
        embedder: Embedder,
        limits: MemoryLimits,
        hide: Callable[[str], str],
        *,
        anew: bool = False,
    ) -> None:
        self._table = table
        self._limits = limits
        self._hide = hide
        self._vectors = Vectors(database, embedder, anew=anew)
        self._calling = EmbedderCalls(embedder)
        self._background = BackgroundThread(
            self._embed_pending, failing="what was remembered could not be embedded, and is found by words", interrupt=self._calling.close
        )
        self.wake = self._background.wake
        self.wait_until_done = self._background.wait_until_done
        self.stop = self._background.stop
        self._unanswered = ""
        self._after = 0
        self._one_at_a_time = False

    @property
    def failure(self) -> str:
        """The last error; empty after a success."""
        return self._background.failure or self._unanswered

    # Questions

    def search(self, query: PassageQuery) -> list[FoundPassage]:
        """Return the passages found by words and by meaning, in one ranking.

        If the embedder fails, search by words only.
        """
        deep = replace(query, limit=_DEPTH)
        by_words = self._table.ranked(deep)
        try:
            by_meaning = self._nearest(deep)
            self._unanswered = ""
        except Exception as error:
            why = str(error) if isinstance(error, CallgateError) else f"{type(error).__name__}: {error}"
            if not self._unanswered:
                log.error("Memory: a question is answered by words alone: %s", one_line(why, LOGGED_CHARS))
            self._unanswered = why
            return list(by_words.values())[: query.limit]
        return fuse_rankings([by_words, by_meaning], query.limit)

    def _nearest(self, query: PassageQuery) -> dict[int, FoundPassage]:
        text = self._hide(query.text)
        if not text.strip():
            return {}
        (vector,) = self._calling.vectors([text], self._limits.embed_question_s)
        return self._vectors.nearest(query, vector, within=self._limits.farthest) if vector else {}

    # Embedding

    def complete(self, timeout_s: float) -> None:
        """Wait until every text that can be embedded is embedded. Texts that were given up before are tried again.

        Raises:
            EmbedderFailed: The embedder failed, or `timeout_s` has passed.
        """
        self._vectors.try_again()
        done = self.wait_until_done(timeout_s)
        if self._background.failure or not done:
            late = f"Not everything is embedded after {timeout_s:g} s. It continues in the background."
            raise EmbedderFailed(self._background.failure or late, late=not done)

    def _embed_pending(self) -> bool:
        """Embed the passages without vectors.

        After a failure, first continue after the failed batch, then start over.
        """
        size = 1 if self._one_at_a_time else self._limits.embed_at_once
        for start in dict.fromkeys((self._after, 0)):
            self._after = start
            while not self._background.stopping and (batch := self._vectors.pending(self._after, size, self._limits.attempts)):
                self._after = batch[-1].number
                self._vectors.store(self._embed(batch))
        self._after, self._one_at_a_time = 0, False
        return True

    def _embed(self, batch: Sequence[PendingVector]) -> Made:
        """Return the batch with its vectors. The vector of a text that cannot be embedded is empty.

        Raises:
            EmbedderFailed: The embedder cannot embed any text.
        """
        made, failure = self._try_batch(batch)
        if not any(vector for _, vector in made):
            self._probe()
        if failure is not None:
            log.warning("Memory: a text could not be embedded, and is found by words: %s", one_line(str(failure), LOGGED_CHARS))
        return made

    def _try_batch(self, batch: Sequence[PendingVector]) -> tuple[Made, EmbedderFailed | None]:
        try:
            return self._request_vectors(batch), None
        except EmbedderFailed as failure:
            if failure.late and len(batch) > 1:
                self._one_at_a_time = True
                raise
            return self._embed_one_by_one(batch) if len(batch) > 1 else [(batch[0], b"")], failure

    def _probe(self) -> None:
        ((_, vector),) = self._request_vectors([PendingVector(0, _PROBE, "[]")])
        if not vector:
            raise EmbedderFailed("The embedder returned a vector that is all zeros or not finite. Check what it computes.")

    def _embed_one_by_one(self, batch: Sequence[PendingVector]) -> Made:
        made: Made = []
        for one in batch:
            try:
                made += self._request_vectors([one])
            except EmbedderFailed as failure:
                if failure.late:
                    self._one_at_a_time = True
                    raise
                made.append((one, b""))
        return made

    def _request_vectors(self, batch: Sequence[PendingVector]) -> Made:
        vectors = self._calling.vectors([self._hide(one.text) for one in batch], self._limits.embed_s)
        return list(zip(batch, vectors, strict=True))
