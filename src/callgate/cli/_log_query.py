"""Convert the options of `callgate log` to an `EventQuery`. Errors about invalid values name the option."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from callgate._call_summary import CallSummary, without_process
from callgate._clock import SystemClock
from callgate._journal import JournalReader, ended_writers, open_reader
from callgate._journal.inbox_sender import open_inbox
from callgate._terminal_text import one_line
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import LogOptions
from callgate.cli._journal_location import without_password
from callgate.cli._run_names import run_named
from callgate.errors import UsageError
from callgate.event_queries import EventQuery

__all__ = ["end_orphans", "has_run", "query_of", "reading", "refuse_damaged", "with_run"]

_MOST = 2**63 - 1
"""The largest number that a store can hold."""
_LATEST = 50
_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@contextmanager
def reading(options: LogOptions, *, to_come: bool = False, check: bool = True) -> Iterator[JournalReader]:
    """Open the journal for reading while the block runs.

    Args:
        to_come: Whether a run or event that does not exist yet is accepted.
        check: Whether to check for damage when the block ends, after everything readable has been shown.

    Raises:
        UsageError: The journal, the requested run or the requested event does not exist, or the journal is damaged.
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
        if not to_come:
            _refuse_unknown(reader, options)
        yield reader
        if check:
            refuse_damaged(reader, options.journal)
    finally:
        reader.close()


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
    run, cause = options.run, query_of(options).caused_by
    if run is not None and not has_run(reader, run):
        latest = [event.run for event in reader.find(EventQuery(kinds=("call.received",), limit=_LATEST, newest_first=True))]
        shown = ", ".join(one_line(name, 80) for name in dict.fromkeys(latest)) or "none"
        raise UsageError(f"No run '{run[:80]}' is on record here. The latest runs: {shown}. `callgate log list` shows all calls.")
    if cause is not None and not list(reader.find(EventQuery(after=cause - 1, before=cause + 1, limit=1))):
        raise UsageError(f"There is no event {cause} in this journal. See `callgate log follow --after 0`.")


def has_run(reader: JournalReader, run: str) -> bool:
    return bool(list(reader.find(EventQuery(run=run, limit=1))))


def with_run(options: LogOptions) -> LogOptions:
    """Return the options with `--run last` replaced by the run's id.

    Raises:
        UsageError: There is no run yet.
    """
    refuse_odd_text(journal=options.journal)
    return options if options.run is None else replace(options, run=run_named(options.run, options.journal))


def query_of(options: LogOptions) -> EventQuery:
    """Return the query for these options.

    Raises:
        UsageError: A time, a field or a number is invalid.
    """
    for name, number, least in (("after", options.after, 0), ("caused-by", options.caused_by, 1), ("limit", options.limit, 1)):
        if number is not None and not least <= number <= _MOST:
            raise UsageError(f"--{name} is {number}; it must be from {least} to {_MOST}.")
    return EventQuery(
        run=options.run,
        tool=options.tool,
        actor=options.actor,
        principal=options.principal,
        kinds=_kinds(options.kind),
        since_ns=_time_ns("since", options.since),
        until_ns=_time_ns("until", options.until),
        field=_field(options.field),
        caused_by=options.caused_by,
        after=options.after or 0,
        limit=options.limit,
    )


def _kinds(kind: str | None) -> tuple[str, ...]:
    """Return the kinds to select: a full kind as it is, and a first part such as `call` as the prefix `call.`."""
    if not kind:
        return ()
    return (kind,) if "." in kind else (f"{kind}.",)


def _time_ns(name: str, text: str | None) -> int | None:
    return None if text is None else max(-_MOST, min(_MOST, _parse_time(name, text)))


def _parse_time(name: str, text: str) -> int:
    ago = _AGO.fullmatch(text)
    if ago:
        return SystemClock.wall_ns() - int(timedelta(**{_UNITS[ago[2]]: int(ago[1])}).total_seconds()) * 1_000_000_000
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000_000) * 1_000
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"--{name} {text[:40]!r} is not a time. Give one like 2026-11-20T14:30, or a time ago: 90s, 15m, 2h, 3d."
        ) from error


def _field(text: str | None) -> tuple[str, object] | None:
    """Split `path=value` into the path and the value. The value is parsed as JSON if possible; otherwise it is text."""
    if text is None:
        return None
    path, sign, value = text.partition("=")
    if not sign or not path:
        raise UsageError(f"--field {text[:80]!r} is not path=value. Give one like code=timeout.")
    try:
        return path, json.loads(value)
    except (ValueError, RecursionError):
        return path, value
