"""Find the run that an argument names: a run's id, or `last` for the newest run of the journal."""

from __future__ import annotations

import re

from callgate._journal import JournalReader, open_reader
from callgate.errors import UsageError
from callgate.event_queries import EventQuery

__all__ = ["LAST", "has_run", "is_unnamed", "newest_run", "run_named"]

LAST = "last"
_OF_AN_ENGINE = re.compile(r"engine-[0-9a-f]{16}")
"""What an engine calls the run of the calls for which its host named none."""


def is_unnamed(run: str) -> bool:
    """Return whether the host gave the run no name, so that it ends with its engine."""
    return _OF_AN_ENGINE.fullmatch(run) is not None


def has_run(reader: JournalReader, run: str) -> bool:
    return bool(list(reader.find(EventQuery(run=run, limit=1))))


def run_named(name: str, journal: str, *, of_agent: bool = False) -> str:
    """Return the run's id. Read the journal only for `last`.

    Args:
        of_agent: Whether `last` means the newest run of an agent. Only such runs can be resumed.

    Raises:
        UsageError: There is no journal, or it has no run.
    """
    if name != LAST:
        return name
    reader = open_reader(journal)
    try:
        return newest_run(reader, of_agent=of_agent)
    finally:
        reader.close()


def newest_run(reader: JournalReader, *, of_agent: bool = False) -> str:
    """Return the run that was the last to start or to receive a call.

    Raises:
        UsageError: The journal has no run.
    """
    kinds = ("run.began",) if of_agent else ("run.began", "call.received")
    found = list(reader.find(EventQuery(kinds=kinds, newest_first=True, limit=1)))
    if not found:
        what = "run of an agent" if of_agent else "run"
        raise UsageError(f"There is no {what} in this journal yet. `callgate log list --journal FILE` shows those of another.")
    return found[0].run
