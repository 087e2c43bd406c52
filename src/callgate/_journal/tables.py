"""The tables of a stored journal, by numbered migrations, and the questions to them.

One text for every database: they differ in a few words. A migration is never changed once a version with it was published; a new one is
put behind it. `events` is the record; `calls` and `causes` are made from it, only to find things, and are no part of the chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from callgate._journal.rows import COLUMNS, Value
from callgate.queries import EventQuery

__all__ = ["ADD_CALL", "ADD_CAUSE", "ADD_EVENT", "LAST_EVENT", "POSTGRES", "SQLITE", "VERSION", "migrations", "question"]

_MIGRATIONS: Final = (
    """
    CREATE TABLE IF NOT EXISTS events (
        position {int} PRIMARY KEY,
        run      {text} NOT NULL,
        seq      {int}  NOT NULL,
        kind     {text} NOT NULL,
        call     {text} NOT NULL,
        attempt  {int}  NOT NULL,
        parents  {text} NOT NULL,
        at_ns    {int}  NOT NULL,
        mono     {real} NOT NULL,
        epoch    {int}  NOT NULL,
        version  {int}  NOT NULL,
        body     {blob} NOT NULL,
        previous {text} NOT NULL,
        hash     {text} NOT NULL,
        UNIQUE (run, seq)
    ){strict};
    CREATE INDEX IF NOT EXISTS events_by_call ON events (call) WHERE call <> '';
    CREATE UNIQUE INDEX IF NOT EXISTS one_end_per_call ON events (call)
        WHERE kind IN ('call.completed', 'call.restarted', 'call.aborted', 'call.suspended');
    """,
    """
    DROP INDEX events_by_call;
    CREATE INDEX events_by_run  ON events (run, position);
    CREATE INDEX events_by_call ON events (call, position) WHERE call <> '';
    CREATE INDEX events_by_kind ON events (kind, position);
    CREATE INDEX events_by_time ON events (at_ns);
    CREATE TABLE calls (
        call  {text} PRIMARY KEY,
        tool  {text} NOT NULL,
        actor {text} NOT NULL,
        final {int}  NOT NULL
    ){compact};
    CREATE INDEX calls_by_tool  ON calls {lookup} (tool);
    CREATE INDEX calls_by_actor ON calls {lookup} (actor);
    CREATE TABLE causes (
        parent {int} NOT NULL,
        child  {int} NOT NULL,
        PRIMARY KEY (parent, child)
    ){compact};
    CREATE TABLE writer (
        epoch      {int}  NOT NULL,
        holder     {text} NOT NULL,
        expires_ns {int}  NOT NULL
    ){strict};
    INSERT INTO writer VALUES (0, '', 0);
    """,
)
VERSION: Final = len(_MIGRATIONS)

SQLITE: Final[Mapping[str, str]] = {
    "int": "INTEGER",
    "text": "TEXT",
    "real": "REAL",
    "blob": "BLOB",
    "strict": " STRICT",
    "compact": " STRICT, WITHOUT ROWID",
    "lookup": "",
}
POSTGRES: Final[Mapping[str, str]] = {
    "int": "BIGINT",
    "text": 'TEXT COLLATE "C"',
    "real": "DOUBLE PRECISION",
    "blob": "BYTEA",
    "strict": "",
    "compact": "",
    "lookup": "USING hash",  # an ordered index refuses long words
}

ADD_EVENT: Final = f"INSERT INTO events ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
ADD_CAUSE: Final = "INSERT INTO causes (parent, child) VALUES (?, ?)"
ADD_CALL: Final = """
    INSERT INTO calls (call, tool, actor, final) VALUES (?, ?, ?, ?)
    ON CONFLICT (call) DO UPDATE SET
        tool = CASE WHEN excluded.final > calls.final OR calls.tool = '' THEN excluded.tool ELSE calls.tool END,
        actor = CASE WHEN calls.actor = '' THEN excluded.actor ELSE calls.actor END,
        final = CASE WHEN excluded.final > calls.final THEN excluded.final ELSE calls.final END
"""
LAST_EVENT: Final = "SELECT position, hash FROM events ORDER BY position DESC LIMIT 1"

_FOLLOWED = """position IN (
    WITH RECURSIVE followed (position) AS (
        SELECT child FROM causes WHERE parent = ?
        UNION SELECT causes.child FROM causes JOIN followed ON causes.parent = followed.position
    ) SELECT position FROM followed)"""


def migrations(words: Mapping[str, str], present: int) -> list[tuple[int, list[str]]]:
    """What brings tables of version `present` to ours: each migration's number and its statements."""
    texts = enumerate(_MIGRATIONS[present:], present + 1)
    return [(number, [one for one in text.format(**words).split(";") if one.strip()]) for number, text in texts]


def question(query: EventQuery, upto: int | None = None) -> tuple[str, list[Value]]:
    """The query in SQL, all but its `field`, and so its `limit` where a field is asked for.

    Args:
        upto: Leave out what lies beyond this position.
    """
    wheres: list[str] = []
    values: list[Value] = []

    def also(where: str, *given: Value | None) -> None:
        if None not in given:
            wheres.append(where)
            values.extend(value for value in given if value is not None)

    also("position > ?", query.after)
    also("position <= ?", upto)
    also("position < ?", query.before)
    also("run = ?", query.run)
    also("call = ? AND call <> ''", query.call)
    if query.calls:
        also(f"call <> '' AND call IN ({', '.join('?' * len(query.calls))})", *query.calls)
    also("at_ns >= ?", query.since_ns)
    also("at_ns < ?", query.until_ns)
    also("call <> '' AND call IN (SELECT call FROM calls WHERE tool = ?)", query.tool)
    also("call <> '' AND call IN (SELECT call FROM calls WHERE actor = ?)", query.actor)
    also(_FOLLOWED, query.caused_by)
    if query.kinds:
        also(f"({' OR '.join(_of_kind(kind) for kind in query.kinds)})", *(part for kind in query.kinds for part in _bounds(kind)))
    limit = "" if query.limit is None or query.field is not None else f" LIMIT {query.limit:d}"
    order = "DESC" if query.newest_first else "ASC"
    return f"SELECT {', '.join(COLUMNS)} FROM events WHERE {' AND '.join(wheres)} ORDER BY position {order}{limit}", values


def _of_kind(kind: str) -> str:
    return "kind >= ? AND kind < ?" if kind.endswith(".") else "kind = ?"


def _bounds(kind: str) -> tuple[str, ...]:
    """A dot at the end stands for all that begin so: up to the character that follows the dot."""
    return (kind, f"{kind[:-1]}/") if kind.endswith(".") else (kind,)
