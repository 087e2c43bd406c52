"""The default passage store: an SQLite file with full-text search, ranked by bm25.

Notes rank higher than calls, and tags higher than words of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from callgate.memory.database import Database
from callgate.memory.passage import FoundPassage, Passage, PassageKind, PassageQuery
from callgate.memory.passage_rows import COLUMNS, SHOWN, narrowing, passage_of, row_of
from callgate.memory.text_terms import MARK, match_expression, plain

if TYPE_CHECKING:
    import apsw

__all__ = ["TablePassages"]

_ADD: Final = f"INSERT INTO passages ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_EMBEDDED: Final = "SELECT vector, origin, words, tags FROM passages JOIN vectors USING (number) WHERE origin = ?"
_EMBEDDED_STILL: Final = """INSERT OR IGNORE INTO vectors (number, vector)
    SELECT number, ? FROM passages WHERE origin = ? AND words = ? AND tags = ?"""
"""Restores the vectors of passages whose words and tags are unchanged."""
_SNIPPET_TOKENS: Final = 48


class TablePassages:
    """A `PassageStore` in a file.

    Args:
        database: The database, or the path of its file.
    """

    def __init__(self, database: Database | str) -> None:
        self._database = database if isinstance(database, Database) else Database(database)

    def keep(self, changes: Mapping[str, Sequence[Passage]]) -> None:
        rows = [row_of(place, passage) for passages in changes.values() for place, passage in enumerate(passages)]
        origins = [(plain(origin),) for origin in changes]
        with self._database.writing() as connection:
            vectors = list(connection.executemany(_EMBEDDED, origins))
            connection.executemany("DELETE FROM passages WHERE origin = ?", origins)
            connection.executemany(_ADD, rows)
            connection.executemany(_EMBEDDED_STILL, vectors)
        if not all(changes.values()):
            self._database.wipe()

    def of(self, origin: str) -> list[Passage]:
        with self._database.reading() as connection:
            rows = connection.execute(f"SELECT {SHOWN} FROM passages WHERE origin = ? ORDER BY place", (plain(origin),))
            return [passage_of(row) for row in rows]

    def search(self, query: PassageQuery) -> list[FoundPassage]:
        return list(self.ranked(query).values())

    def ranked(self, query: PassageQuery) -> dict[int, FoundPassage]:
        """Return the results of `search`, in the same order, as a mapping from row number to passage."""
        words = match_expression(query.text)
        if not words or query.limit < 1:
            return {}
        wheres, values = narrowing(query)
        sql = f"""
            SELECT {SHOWN}, passages.number, snippet(passage_words, 0, '', '', '…', {_SNIPPET_TOKENS}),
                bm25(passage_words, 1.0, 2.0) * CASE kind WHEN 'note' THEN 1.5 ELSE 1.0 END AS rank
            FROM passage_words JOIN passages ON passages.number = passage_words.rowid
            WHERE passage_words MATCH ? AND {wheres}
            ORDER BY rank, at_ns DESC, passages.number LIMIT ?"""
        with self._database.reading() as connection:
            rows = list(connection.execute(sql, (words, *values, query.limit)))
        return {
            int(row[-3]): FoundPassage(passage=passage_of(row), snippet=str(row[-2]).replace(MARK, ""), score=-float(row[-1]))
            for row in rows
        }

    def files(self, workspace: str) -> dict[str, str]:
        with self._database.reading() as connection:
            sql = "SELECT DISTINCT path, stamp FROM passages WHERE kind = 'file' AND workspace = ?"
            return {str(path): str(stamp) for path, stamp in connection.execute(sql, (workspace,))}

    def count(self, kind: PassageKind, principal: str | None = None) -> int:
        sql = "SELECT count(*) FROM passages WHERE kind = ?1 AND (?2 IS NULL OR principal = ?2)"
        with self._database.reading() as connection:
            return int(connection.execute(sql, (kind, principal)).get)

    def trim(self, kind: PassageKind, principal: str, most: int) -> int:
        with self._database.writing() as connection:
            return _trim(connection, kind, principal, most)

    def close(self) -> None:
        self._database.close()


def _trim(connection: apsw.Connection, kind: PassageKind, principal: str, most: int) -> int:
    sql = """DELETE FROM passages WHERE number IN (
        SELECT number FROM passages WHERE kind = ? AND principal = ? ORDER BY at_ns DESC, number DESC LIMIT -1 OFFSET ?)"""
    connection.execute(sql, (kind, principal, most))
    return connection.changes()
