"""The run that a word names: its id, or `last` for the newest one of the journal. The one place that knows `last`."""

from __future__ import annotations

from callgate._journal import Reader, open_reader
from callgate.errors import UsageError
from callgate.queries import EventQuery

__all__ = ["LAST", "newest_run", "run_named"]

LAST = "last"


def run_named(name: str, journal: str, *, of_agent: bool = False) -> str:
    """Return the id of the run; looks into the journal for `last` only.

    Args:
        of_agent: Whether only runs of an agent are meant, which can go on.

    Raises:
        UsageError: There is no journal, or no run in it yet.
    """
    if name != LAST:
        return name
    reader = open_reader(journal)
    try:
        return newest_run(reader, of_agent=of_agent)
    finally:
        reader.close()


def newest_run(reader: Reader, *, of_agent: bool = False) -> str:
    """The run that began, or had a call, most recently.

    Raises:
        UsageError: There is none.
    """
    kinds = ("run.began",) if of_agent else ("run.began", "call.received")
    found = list(reader.find(EventQuery(kinds=kinds, newest_first=True, limit=1)))
    if not found:
        what = "run of an agent" if of_agent else "run"
        raise UsageError(f"There is no {what} in this journal yet. `callgate log list --journal FILE` shows those of another.")
    return found[0].run
