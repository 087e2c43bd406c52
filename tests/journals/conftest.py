"""Fixtures that provide each kind of journal, so that a test can close and reopen it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from callgate import MemoryJournal, PostgresJournal, SqliteJournal
from callgate.protocols import Journal

Open = Callable[[], Journal]


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
