"""Fixtures that provide each kind of journal, so that a test can close and reopen it."""

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
    """Provide the address of an empty database."""
    with server.empty_database() as url:
        yield url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return a function that opens the same journal on each call; the caller must close the previous journal first."""
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
