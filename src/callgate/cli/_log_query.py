"""Convert the options of `callgate log` to an `EventQuery`. Errors about invalid values name the option."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta

from callgate._clock import SystemClock
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import LogOptions
from callgate.cli._run_names import run_named
from callgate.errors import UsageError
from callgate.event_queries import EventQuery

__all__ = ["query_of", "with_run"]

_MOST = 2**63 - 1
"""The largest number that a store can hold."""
_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


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
