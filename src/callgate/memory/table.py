"""Passages in an SQLite file, found by full-text search and ranked by bm25.

The default store. What a note says counts more than what a call came to, and a tag more than a word of the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from callgate.memory.database import Database
from callgate.memory.passages import Found, Passage, PassageKind, PassageQuery
from callgate.memory.words import MARK, match_expression, plain, spaced

if TYPE_CHECKING:
    import apsw

__all__ = ["TablePassages"]

_TEXTS: Final = ("kind", "principal", "actor", "conversation", "run", "call", "tool", "workspace", "path", "stamp")
_COLUMNS: Final = ("origin", "place", "at_ns", "line", "redacted", "tags", "words", *_TEXTS)
_ADD: Final = f"INSERT INTO passages ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_SHOWN: Final = ", ".join(f"passages.{name}" for name in _COLUMNS)
_SNIPPET_TOKENS: Final = 48
_tags = msgspec.json.Decoder(tuple[str, ...]).decode

Value = str | int
Row = tuple[Value, ...]


class TablePassages:
    """A `PassageStore` in a file.

    Args:
        database: The file, or its path.
    """

    def __init__(self, database: Database | str) -> None:
        self._database = database if isinstance(database, Database) else Database(database)

    def keep(self, changes: Mapping[str, Sequence[Passage]]) -> None:
        rows = [_row(place, passage) for passages in changes.values() for place, passage in enumerate(passages)]
        with self._database.writing() as connection:
            connection.executemany("DELETE FROM passages WHERE origin = ?", [(plain(origin),) for origin in changes])
            connection.executemany(_ADD, rows)
        if not all(changes.values()):
            self._database.wipe()

    def of(self, origin: str) -> list[Passage]:
        with self._database.reading() as connection:
            rows = connection.execute(f"SELECT {_SHOWN} FROM passages WHERE origin = ? ORDER BY place", (plain(origin),))
            return [_passage(row) for row in rows]

    def search(self, query: PassageQuery) -> list[Found]:
        words = match_expression(query.text)
        if not words or query.limit < 1:
            return []
        wheres, values = _narrowing(query)
        sql = f"""
            SELECT {_SHOWN}, snippet(passage_words, 0, '', '', '…', {_SNIPPET_TOKENS}),
                bm25(passage_words, 1.0, 2.0) * CASE kind WHEN 'note' THEN 1.5 ELSE 1.0 END AS rank
            FROM passage_words JOIN passages ON passages.number = passage_words.rowid
            WHERE passage_words MATCH ? AND {wheres}
            ORDER BY rank, at_ns DESC, number LIMIT ?"""
        with self._database.reading() as connection:
            rows = list(connection.execute(sql, (words, *values, query.limit)))
        return [Found(passage=_passage(row), snippet=str(row[-2]).replace(MARK, ""), score=-float(row[-1])) for row in rows]

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


def _narrowing(query: PassageQuery) -> tuple[str, list[Value]]:
    """The question's filters in SQL: what `admits` says."""
    wheres, values = ["principal = ?"], list[Value]([query.principal])
    if query.kinds:
        wheres.append(f"kind IN ({', '.join('?' * len(query.kinds))})")
        values += query.kinds
    named = {"actor": query.actor, "conversation": query.conversation, "run": query.run, "tool": query.tool}
    asked: list[tuple[str, Value | None]] = [(f"{name} = ?", value) for name, value in named.items()]
    asked += [("(kind <> 'file' OR workspace = ?)", query.workspace), ("at_ns >= ?", query.since_ns), ("at_ns < ?", query.until_ns)]
    for where, value in asked:
        if value is not None:
            wheres.append(where)
            values.append(value)
    return " AND ".join(wheres), [plain(value) if isinstance(value, str) else value for value in values]


def _row(place: int, passage: Passage) -> Row:
    tags = msgspec.json.encode([spaced(tag) for tag in passage.tags]).decode()
    texts = [plain(getattr(passage, name)) for name in _TEXTS]
    return (plain(passage.origin), place, passage.at_ns, passage.line, int(passage.redacted), tags, spaced(passage.text), *texts)


def _passage(row: Sequence[Value]) -> Passage:
    origin, _, at_ns, line, redacted, tags, words, *texts = row[: len(_COLUMNS)]
    return Passage(
        origin=str(origin),
        text=str(words).replace(MARK, ""),
        at_ns=int(at_ns),
        line=int(line),
        redacted=bool(redacted),
        tags=tuple(tag.replace(MARK, "") for tag in _tags(str(tags))),
        **dict(zip(_TEXTS, texts, strict=True)),  # type: ignore[arg-type]  # the columns of these names
    )
