"""The server that tests start, as in `tests/journals`."""

from __future__ import annotations

from tests.journals.conftest import database, server

__all__ = ["database", "server"]
