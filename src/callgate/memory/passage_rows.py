"""Convert passages to rows of the table `passages`, and the filters of a query to SQL. Used by every kind of search.

Pure. `passage` defines the fields; the statements that use these columns are in `passage_table` and `passage_vectors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from callgate.memory.passage import Passage, PassageQuery
from callgate.memory.text_terms import MARK, plain, spaced

__all__ = ["COLUMNS", "SHOWN", "Row", "Value", "narrowing", "passage_of", "row_of", "tags_of"]

_TEXTS: Final = ("kind", "principal", "actor", "conversation", "run", "call", "tool", "workspace", "path", "stamp")
COLUMNS: Final = ("origin", "place", "at_ns", "line", "redacted", "tags", "words", *_TEXTS)
SHOWN: Final = ", ".join(f"passages.{name}" for name in COLUMNS)
_decoded = msgspec.json.Decoder(tuple[str, ...]).decode

Value = str | int
Row = tuple[Value, ...]


def narrowing(query: PassageQuery) -> tuple[str, list[Value]]:
    """Return the query's filters as an SQL condition and its values. The condition selects the same passages as `PassageQuery.admits`."""
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


def row_of(place: int, passage: Passage) -> Row:
    tags = msgspec.json.encode([spaced(tag) for tag in passage.tags]).decode()
    texts = [plain(getattr(passage, name)) for name in _TEXTS]
    return (plain(passage.origin), place, passage.at_ns, passage.line, int(passage.redacted), tags, spaced(passage.text), *texts)


def passage_of(row: Sequence[Value]) -> Passage:
    origin, _, at_ns, line, redacted, tags, words, *texts = row[: len(COLUMNS)]
    return Passage(
        origin=str(origin),
        text=str(words).replace(MARK, ""),
        at_ns=int(at_ns),
        line=int(line),
        redacted=bool(redacted),
        tags=tags_of(str(tags)),
        **dict(zip(_TEXTS, texts, strict=True)),  # type: ignore[arg-type]  # the columns of these names
    )


def tags_of(column: str) -> tuple[str, ...]:
    return tuple(tag.replace(MARK, "") for tag in _decoded(column))
