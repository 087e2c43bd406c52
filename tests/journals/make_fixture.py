"""Write the fixture journal of the current format with `python -m tests.journals.make_fixture NAME`. Each format is written once.

A fixture never changes after it is committed: it proves that this version can open, verify, replay and resume what an older callgate wrote.
The fixture also includes the same rows for a PostgreSQL server, and a summary of what the readers returned. Each part of the work runs in a
separate process, because some parts are killed. The machine's name is replaced.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any, Final

import apsw

from callgate import DirectoryBlobs, SqliteJournal
from callgate._journal import open_reader
from callgate._journal.postgres_blobs import TABLE
from callgate._journal.sql_schema import POSTGRES, migrations
from callgate.protocols import Journal
from tests.effect_ledger import Ledger
from tests.journals import scenario
from tests.journals.journal_summary import read_again

FOLDER: Final = Path(__file__).with_name("fixtures")
PARTS: Final = {
    "calls": 0,
    "agent_done": 0,
    "agent_waiting": 0,
    "call_cut_off": -signal.SIGKILL,
    "agent_cut_off": -signal.SIGKILL,
    "agent_approved": -signal.SIGKILL,
}
"""Each part of the work, and the exit code of its process."""
_TABLES: Final = ("events", "calls", "causes", "writer", "leases", "inbox")


def write_part(journal: str, ledger: str, part: str) -> None:
    """Do one part of the work in this process."""
    work: Any = getattr(scenario, part)
    asyncio.run(_write(work, SqliteJournal(journal), Ledger(Path(ledger))))


async def _write(work: Any, journal: Journal, ledger: Ledger) -> None:
    await work(journal, ledger)


def make(journal: Path) -> None:
    """Write the journal files in the state in which callgate leaves them, and the same rows for a PostgreSQL server."""
    ledger = journal.with_suffix(".ledger")
    for part, code in PARTS.items():
        done = run([sys.executable, "-m", "tests.journals.make_fixture", str(journal), str(ledger), part], check=False)
        assert done.returncode == code, (part, done.returncode)
    ledger.unlink()
    connection = apsw.Connection(str(journal))
    if "leases" in _tables(connection):
        connection.execute("UPDATE leases SET who = 'process 1 on a machine'")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.with_suffix(".sql").write_text("\n".join(_dump(connection, journal)) + "\n", encoding="utf-8")
    connection.close()
    write_readings(journal)


def write_readings(journal: Path) -> None:
    """Write the readers' summary of the journal."""
    reader = open_reader(journal)
    said = json.dumps(read_again(reader, DirectoryBlobs(Path(f"{journal}.blobs"))), indent=1, sort_keys=True)
    reader.close()
    journal.with_suffix(".json").write_text(f"{said}\n", encoding="utf-8")


def _tables(connection: apsw.Connection) -> list[str]:
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return [name for name in _TABLES if name in present]


def _dump(connection: apsw.Connection, journal: Path) -> Iterator[str]:
    version = int(connection.execute("PRAGMA user_version").get)
    yield "-- The rows of the fixture journal of this name, as a PostgreSQL schema has them. Never to be changed."
    yield "CREATE TABLE journal_version (number BIGINT PRIMARY KEY);"
    yield f"{TABLE.strip()};"
    for number, statements in migrations(POSTGRES, 0):
        if number <= version:
            yield from (f"{statement.strip()};" for statement in statements)
            yield f"INSERT INTO journal_version VALUES ({number});"
    yield "DELETE FROM writer;"
    for table in _tables(connection):
        for row in connection.execute(f"SELECT * FROM {table}"):
            yield f"INSERT INTO {table} VALUES ({', '.join(map(_literal, row))});"
    for blob in sorted(path for path in Path(f"{journal}.blobs").rglob("*") if path.is_file()):
        yield f"INSERT INTO blobs VALUES ('{blob.parent.name}{blob.name}', 0, {_literal(blob.read_bytes())});"


def _literal(value: object) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        make(FOLDER / f"{sys.argv[1]}.db")
    else:
        write_part(*sys.argv[1:])
