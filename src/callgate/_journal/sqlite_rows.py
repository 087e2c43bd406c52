"""Insert events into an SQLite file, many rows per statement, together with the rows of the tables for searching.

One statement per row would cost more, and between two statements the writing thread may have to wait for the interpreter lock. Called
inside a commit; starts and ends none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final

from callgate._journal.event_rows import Value, calls_of, causes_of, event_to_row
from callgate._journal.sql_schema import ADD_CALL, ADD_CAUSE, ADD_EVENT
from callgate.events import Event

if TYPE_CHECKING:
    import apsw

__all__ = ["insert", "insert_calls", "insert_lookup_rows"]

_TOGETHER: Final = (64, 8)
"""Rows per statement. There are two statements for each table, which stay prepared; the remaining rows are inserted one by one."""


def insert(connection: apsw.Connection, batch: Sequence[Event]) -> None:
    _add(connection, ADD_EVENT, [event_to_row(event) for event in batch])
    insert_lookup_rows(connection, batch)


def insert_lookup_rows(connection: apsw.Connection, batch: Sequence[Event]) -> None:
    """Insert only the rows that are derived from the events for searching."""
    _add(connection, ADD_CAUSE, causes_of(batch))
    insert_calls(connection, batch)


def insert_calls(connection: apsw.Connection, batch: Sequence[Event]) -> None:
    """Insert or complete only the facts of the events' calls."""
    _add(connection, ADD_CALL, calls_of(batch))


def _add(connection: apsw.Connection, add: str, rows: Sequence[tuple[Value, ...]]) -> None:
    at = 0
    for count in _TOGETHER:
        while len(rows) - at >= count:
            connection.execute(_expand_rows(add, count), tuple(chain.from_iterable(rows[at : at + count])))
            at += count
    connection.executemany(add, rows[at:])


@cache
def _expand_rows(add: str, count: int) -> str:
    """Return the statement that inserts `count` rows, made from the one that inserts one."""
    head, row, end = re.split(r"VALUES (\([?, ]+\))", add)
    return f"{head}VALUES {', '.join([row] * count)}{end}"
