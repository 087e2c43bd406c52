"""Imports the PostgreSQL server fixtures of `tests/journals`."""

from __future__ import annotations

from tests.journals.conftest import database, server

__all__ = ["database", "server"]
