"""Refuse, when an engine is made, a journal that the engine could not write to.

Without this check, each call would end with a result that says so, which the model reads instead of the developer.
Knows no kind of journal.
"""

from __future__ import annotations

import os
from typing import cast

from callgate._unusable_paths import displayed
from callgate.errors import UsageError
from callgate.protocols import Journal

__all__ = ["check_journal"]

_METHODS = ("append", "durable", "final_position", "acquire_lease", "release_lease", "watch", "read", "find", "status", "close")
_ATTRIBUTES = ("strength", "remote", "shared")


def check_journal(journal: object) -> None:
    """Check a host's journal; None is accepted.

    Raises:
        UsageError: It is a path or an address, lacks a part of the `Journal` protocol, is closed, or has failed.
    """
    if journal is None:
        return
    if isinstance(journal, (str, os.PathLike)):
        raise _path_error(journal)
    missing = [name for name in _METHODS if not callable(getattr(journal, name, None))]
    missing += [name for name in _ATTRIBUTES if not hasattr(journal, name)]
    if missing:
        kind = type(journal).__name__
        raise UsageError(
            f"Engine(journal=...) was given a {kind}, which lacks {', '.join(missing)}. Take a SqliteJournal, PostgresJournal or"
            " MemoryJournal, or write the rest of the Journal protocol."
        )
    failure = cast("Journal", journal).status().failure
    if failure:
        raise UsageError(
            f"Engine(journal=...) was given a journal that cannot be written: {failure.rstrip('.')}. Open it again for each engine."
        )


def _path_error(journal: str | os.PathLike[str]) -> UsageError:
    text = displayed(journal)
    if text.startswith(("postgresql://", "postgres://")):
        return UsageError("Engine(journal=...) was given the address of a server. Write journal=PostgresJournal(...) with that address.")
    if text == ":memory:":
        return UsageError("Engine(journal=':memory:') was given a name for a database in memory. Write journal=MemoryJournal().")
    return UsageError(f"Engine(journal={text!r}) was given a path. Write journal=SqliteJournal({text!r}).")
