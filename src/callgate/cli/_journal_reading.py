"""Read a journal for a command: open it, refuse what it does not have, and report damage at the end."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from callgate._call_summary import CallSummary, without_process
from callgate._journal import JournalReader, ended_writers, open_reader
from callgate._journal.inbox_sender import open_inbox
from callgate._terminal_text import one_line
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import LogOptions
from callgate.cli._journal_location import journal_option, without_password
from callgate.cli._log_query import query_of
from callgate.cli._no_calls import refuse_unknown_kind
from callgate.cli._run_names import has_run
from callgate.errors import UsageError
from callgate.event_queries import EventQuery

__all__ = ["end_orphans", "reading", "refuse_damaged"]

_LATEST = 50


@contextmanager
def reading(options: LogOptions, *, to_come: bool = False, check: bool = True) -> Iterator[JournalReader]:
    """Open the journal for reading while the block runs.

    Args:
        to_come: Whether a run or event that does not exist yet is accepted.
        check: Whether to check for damage when the block ends, after everything readable has been shown.

    Raises:
        UsageError: The journal, the requested kind, run or event does not exist, or the journal is damaged.
    """
    refuse_odd_text(
        journal=options.journal,
        run=options.run,
        kind=options.kind,
        tool=options.tool,
        actor=options.actor,
        principal=options.principal,
        field=options.field,
    )
    reader = open_reader(options.journal)
    try:
        refuse_unknown_kind(reader, query_of(options))
        if not to_come:
            _refuse_unknown(reader, options)
        yield reader
        if check:
            refuse_damaged(reader, options.journal)
    finally:
        reader.close()


def refuse_damaged(reader: JournalReader, journal: str) -> None:
    """Raise `UsageError` if reading the journal has found damage."""
    damage = reader.damage()
    if damage:
        place = without_password(journal)
        raise UsageError(
            f"{place} is damaged, so what is shown may be wrong or incomplete ({one_line(damage, 200)}). `callgate log verify --journal"
            f" {shlex.quote(place)}` shows where it is damaged. Restore an earlier copy."
        )


def _refuse_unknown(reader: JournalReader, options: LogOptions) -> None:
    """Raise `UsageError` for a run or event that does not exist, instead of showing that no events match."""
    run, cause, place = options.run, query_of(options).caused_by, journal_option(options.journal)
    if run is not None and not has_run(reader, run):
        latest = [event.run for event in reader.find(EventQuery(kinds=("call.received",), limit=_LATEST, newest_first=True))]
        shown = ", ".join(one_line(name, 80) for name in dict.fromkeys(latest)) or "none"
        raise UsageError(f"No run '{run[:80]}' is on record here. The latest runs: {shown}. `callgate log list{place}` shows all calls.")
    if cause is not None and not list(reader.find(EventQuery(after=cause - 1, before=cause + 1, limit=1))):
        raise UsageError(f"There is no event {cause} in this journal. See `callgate log follow --after 0{place}`.")


def end_orphans(calls: Iterable[CallSummary], journal: str) -> None:
    """Set the outcome of calls that have no end and that no process works on: their engine has ended, or their run has no lease."""
    left = [call for call in calls if call.status == "open"]
    if not left:
        return
    has_ended = ended_writers(journal)
    try:
        with open_inbox(journal, read_only=True) as client:
            held = {run: bool(client.holder(run)) for run in {call.run for call in left}}
    except UsageError:  # an older journal does not say who works on a run
        return
    for call in left:
        if not held[call.run] or call.settled or (call.writer and has_ended(call.writer)):
            without_process(call)
