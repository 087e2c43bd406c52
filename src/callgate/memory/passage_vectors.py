"""Store the vectors of passages in the memory's file, and find the passages nearest to a question.

The search is exact: sqlite-vec compares every vector that passes the query's filters. Vectors are plain rows, so that
the file can be used without that extension. One embedder computed all vectors; the file stores its name. A vector is
deleted with its passage. This module does not call the embedder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from callgate.errors import UsageError
from callgate.memory.database import Database
from callgate.memory.embedder_protocol import Embedder
from callgate.memory.passage import FoundPassage, PassageKind, PassageQuery
from callgate.memory.passage_rows import SHOWN, narrowing, passage_of, tags_of
from callgate.memory.text_terms import MARK

if TYPE_CHECKING:
    import apsw

__all__ = ["PendingVector", "Vectors", "count_vectors", "extension"]

_KINDS: Final[tuple[PassageKind, ...]] = ("note", "call", "file")
_SNIPPET_CHARS: Final = 300


class PendingVector(Struct, frozen=True):
    """A passage without a vector."""

    number: int
    words: str
    """The passage's text as it is stored in the table."""
    tags: str

    @property
    def text(self) -> str:
        """Return the text to embed: the words and the tags."""
        return "\n".join([self.words.replace(MARK, ""), *tags_of(self.tags)])


def extension() -> str:
    """Return the path of sqlite-vec's library.

    Raises:
        UsageError: sqlite-vec is not installed.
    """
    found = find_spec("sqlite_vec")  # not imported, because that would load numpy if it is installed
    if found is None or not found.submodule_search_locations:
        raise UsageError("A memory with an embedder needs an extra: pip install 'callgate[memory]'. Without an embedder, words find.")
    return os.path.join(found.submodule_search_locations[0], "vec0")


class Vectors:
    """The vectors that one embedder computed.

    Args:
        database: The database, opened with the extension.
        anew: Whether to drop vectors of another embedder instead of raising.

    Raises:
        UsageError: The file has vectors of another embedder.
    """

    def __init__(self, database: Database, embedder: Embedder, *, anew: bool = False) -> None:
        self._database = database
        self._name = embedder.name
        self._dimension = embedder.dimension
        with database.writing() as connection:
            if anew and _embedder_of(connection) not in (None, (self._name, self._dimension)):
                connection.execute("INSERT OR IGNORE INTO unembedded (number, failures) SELECT number, 0 FROM vectors")
                connection.execute("DELETE FROM vectors")
                connection.execute("DELETE FROM embedders")
            connection.execute("INSERT OR IGNORE INTO embedders VALUES (1, ?, ?)", (self._name, self._dimension))
            self._check(connection)

    def pending(self, after: int, limit: int, attempts: int) -> list[PendingVector]:
        """Return passages that have no vector and are not given up, in the order of their row numbers.

        Args:
            after: Return only passages with a higher row number.
            limit: The maximum number of passages.
            attempts: The number of failures after which a passage is given up.
        """
        sql = """SELECT number, words, tags FROM unembedded JOIN passages USING (number)
            WHERE number > ? AND failures < ? ORDER BY number LIMIT ?"""
        with self._database.reading() as connection:
            return [PendingVector(*row) for row in connection.execute(sql, (after, attempts, limit))]

    def store(self, made: Sequence[tuple[PendingVector, bytes]]) -> None:
        """Store the vectors of those passages that have not changed since `pending` returned them.

        Count an empty vector as a failure.

        Raises:
            UsageError: The file now has vectors of another embedder.
        """
        same = "SELECT number FROM passages WHERE number = ? AND words = ? AND tags = ?"
        add = f"INSERT OR IGNORE INTO vectors (number, vector) SELECT number, ? FROM ({same})"
        count = f"UPDATE unembedded SET failures = failures + 1 WHERE number IN ({same})"
        with self._database.writing() as connection:
            self._check(connection)
            connection.executemany(add, [(vector, one.number, one.words, one.tags) for one, vector in made if vector])
            connection.executemany(count, [(one.number, one.words, one.tags) for one, vector in made if not vector])

    def try_again(self) -> None:
        """Reset the failure counts of all passages, so that passages that were given up are tried again."""
        with self._database.writing() as connection:
            connection.execute("UPDATE unembedded SET failures = 0")

    def nearest(self, query: PassageQuery, vector: bytes, *, within: float) -> dict[int, FoundPassage]:
        """Return the passages whose vectors are nearest, nearest first. Equally near passages are sorted newest first.

        Args:
            within: The cosine distance below which a passage is found: 0 is the same direction, 1 is unrelated, 2 is
                the opposite.

        Raises:
            UsageError: The file now has vectors of another embedder.
        """
        wheres, values = narrowing(replace(query, kinds=query.kinds or _KINDS))
        sql = f"""
            WITH compared AS (
                SELECT number, at_ns, vec_distance_cosine(vector, ?) AS distance FROM passages JOIN vectors USING (number) WHERE {wheres}
            ), near AS (SELECT * FROM compared WHERE distance < ? ORDER BY distance, at_ns DESC, number LIMIT ?)
            SELECT {SHOWN}, near.number, near.distance FROM near JOIN passages ON passages.number = near.number
            ORDER BY near.distance, near.at_ns DESC, near.number"""
        with self._database.reading() as connection:
            self._check(connection)
            rows = list(connection.execute(sql, (vector, *values, within, query.limit)))
        found = [(int(row[-2]), passage_of(row), float(row[-1])) for row in rows]
        return {number: FoundPassage(passage=one, snippet=_snippet(one.text), score=1 - distance) for number, one, distance in found}

    def _check(self, connection: apsw.Connection) -> None:
        known = _embedder_of(connection)
        if known != (self._name, self._dimension):
            name, dimension = known or ("", 0)
            raise UsageError(
                f"{self._database.path} has vectors of the embedder {name!r} ({dimension:,} numbers each), which cannot be compared with"
                f" those of {self._name!r} ({self._dimension:,}). Give it the first one again, or drop its vectors and embed everything"
                " anew: Memory(..., re_embed=True)."
            )


def count_vectors(database: Database) -> tuple[str, int, int]:
    """Return the name of the file's embedder, the number of vectors, and the number of passages without a vector.

    Return an empty name and zeros if the file never had an embedder.
    """
    with database.reading() as connection:
        known = _embedder_of(connection)
        embedded = int(connection.execute("SELECT count(*) FROM vectors").get)
        return (known[0], embedded, int(connection.execute("SELECT count(*) FROM unembedded").get)) if known else ("", 0, 0)


def _embedder_of(connection: apsw.Connection) -> tuple[str, int] | None:
    row = next(connection.execute("SELECT name, dimension FROM embedders"), None)
    return (str(row[0]), int(row[1])) if row else None


def _snippet(text: str) -> str:
    return text if len(text) <= _SNIPPET_CHARS else text[:_SNIPPET_CHARS] + "…"
