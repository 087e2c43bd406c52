"""How events become rows of an SQLite file: many by one statement, with what serves to find them.

A statement for each row would cost more, and between two statements the writing thread may have to wait for its turn with the interpreter.
Called inside a commit; begins and ends none.
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

__all__ = ["insert", "insert_finding"]

_TOGETHER: Final = (64, 8)
"""Rows of one statement: two statements for each table, which stay prepared. What is left over has one for each row."""


def insert(connection: apsw.Connection, batch: Sequence[Event]) -> None:
    _add(connection, ADD_EVENT, [event_to_row(event) for event in batch])
    insert_finding(connection, batch)


def insert_finding(connection: apsw.Connection, batch: Sequence[Event]) -> None:
    """Only what is made from the events to find them."""
    _add(connection, ADD_CAUSE, causes_of(batch))
    _add(connection, ADD_CALL, calls_of(batch))


def _add(connection: apsw.Connection, add: str, rows: Sequence[tuple[Value, ...]]) -> None:
    at = 0
    for count in _TOGETHER:
        while len(rows) - at >= count:
            connection.execute(_for_rows(add, count), tuple(chain.from_iterable(rows[at : at + count])))
            at += count
    connection.executemany(add, rows[at:])


@cache
def _for_rows(add: str, count: int) -> str:
    """The statement that adds so many rows, made from the one that adds one."""
    head, row, end = re.split(r"VALUES (\([?, ]+\))", add)
    return f"{head}VALUES {', '.join([row] * count)}{end}"
