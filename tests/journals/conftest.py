"""Each kind of journal, as something that can be closed and opened again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from callgate import MemoryJournal, PostgresJournal, SqliteJournal
from callgate.protocols import Journal
from tests.journals.postgres_server import Server, Unavailable, running_server

Open = Callable[[], Journal]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        with running_server() as running:
            yield running
    except Unavailable as reason:
        pytest.skip(f"PostgreSQL: {reason}")


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The address of an empty database."""
    with server.empty_database() as url:
        yield url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same journal whenever it is called; what was open before has to be closed."""
    if request.param == "memory":
        kept = MemoryJournal()
        return lambda: kept
    if request.param == "sqlite":
        return lambda: SqliteJournal(tmp_path / "journal.db")
    url = request.getfixturevalue("database")
    return lambda: PostgresJournal(url)


@pytest.fixture
async def journal(place: Open) -> AsyncIterator[Journal]:
    made = place()
    yield made
    await made.close()
