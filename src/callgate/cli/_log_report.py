"""`callgate log stats`, `verify` and `export`: evaluate, check and export a whole journal. Only reads."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Sequence
from math import log10
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.text import Text

from callgate._call_statistics import Statistics, ToolStatistics, plain, sealed_at, statistics
from callgate._call_summary import summarise
from callgate._json import canonical
from callgate._terminal_text import one_line, printable_json
from callgate.cli import _exit_codes as _exits
from callgate.cli._command_options import LogOptions
from callgate.cli._console import STYLES, grid, output, print_json, say
from callgate.cli._journal_location import journal_option, without_password
from callgate.cli._journal_reading import end_orphans, reading
from callgate.cli._log_query import query_of
from callgate.cli._standard_streams import reader_is_gone
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.events import Event

__all__ = ["export", "stats", "verify_chain"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_COLUMNS = 12
_BAR = 24


def stats(options: LogOptions) -> int:
    query = query_of(options)
    with reading(options) as reader:
        calls = summarise(reader.find(query))
        end_orphans(calls, options.journal)
        sealed = sealed_at(reader.find(replace(query, kinds=("emission.sealed",), tool=None, actor=None, principal=None)))
        found = statistics([call for call in calls if call.kinds[0] == "call.received"], sealed)
        if options.json:
            print_json(plain(found))
        elif found.calls:
            _print_statistics(found)
        else:
            say(f"No calls match. `callgate log list{journal_option(options.journal)}` shows the calls of this journal.")
    return _exits.OK


def _print_statistics(found: Statistics) -> None:
    screen = output()
    screen.print(Text(f"{found.calls:,} calls in {found.runs:,} runs"))
    table = grid("tool", "calls", "", "p50 ms", "p95 ms", "longest", "times", right=("calls", "p50 ms", "p95 ms", "longest"))
    for tool in found.tools:
        times = (f"{tool.p50_ms:,.1f}", f"{tool.p95_ms:,.1f}", f"{tool.longest_ms:,.1f}") if tool.times_ms else ("", "", "")
        table.add_row(one_line(tool.tool) or "?", f"{tool.calls:,}", _bar(tool, found.tools[0].calls), *times, _curve(tool.times_ms))
    screen.print(table, soft_wrap=False)
    if found.failures:
        screen.print()
        failures = grid("failure", "calls", "", right=("calls",))
        most = max(found.failures.values())
        for name, calls in found.failures.items():
            failures.add_row(one_line(name), f"{calls:,}", Text("█" * max(1, round(_BAR * calls / most)), style=STYLES["error"]))
        screen.print(failures, soft_wrap=False)
    screen.print()
    screen.print(Text(f"cached: {found.cached:,}, saving about {found.cache_saved_ms:,.0f} ms"))
    screen.print(Text(f"started early: {found.early:,}, saving about {found.early_saved_ms:,.0f} ms"))
    screen.print(Text(f"tried again: {found.retried:,} · answered from the record: {found.replayed:,}"))


def _bar(tool: ToolStatistics, most: int) -> Text:
    """Return a bar as long as the number of calls, coloured by their status."""
    length = max(1, round(_BAR * tool.calls / most))
    bar, given = Text(), 0
    for status, calls in tool.statuses.items():
        given += calls
        bar.append("█" * (round(length * given / tool.calls) - len(bar)), style=STYLES.get(status, ""))
    return bar


def _curve(times: Sequence[float]) -> str:
    """Return a histogram of the times, from the shortest to the longest, on a logarithmic scale."""
    if not times:
        return ""
    marks = [log10(max(time, 0.001)) for time in times]
    low, width = marks[0], (marks[-1] - marks[0]) or 1.0
    counts = [0] * _COLUMNS
    for mark in marks:
        counts[min(_COLUMNS - 1, int((mark - low) / width * _COLUMNS))] += 1
    return "".join(" " if not count else _BLOCKS[(count * (len(_BLOCKS) - 1)) // max(counts)] for count in counts)


def verify_chain(options: LogOptions, tail: int | None) -> int:
    if tail is not None and tail < 1:
        raise UsageError(f"--tail is {tail}; it must be 1 or more.")
    with reading(options, check=False) as reader:
        broken = reader.verify(tail=tail)
        newest = EventQuery(limit=1, newest_first=True)
        events = next((event.position for event in list(reader.find(newest))), 0) if broken is None else max(0, broken.position - 1)
    holds = broken is None
    what = f"{events} events" if tail is None else f"the last {min(tail, events)} of {events} events"
    if options.json:
        print_json({"holds": holds, "events": events, "broken": broken})
    elif broken is None:
        output().print(Text(f"{without_password(options.journal)}: {what}, every hash, number and cause holds."))
    else:
        where = f" at event {broken.position}" if broken.position else ""
        say(f"{without_password(options.journal)} does not hold{where}: {broken.why}. It was changed after it was written.", "red")
    return _exits.OK if holds else _exits.FAILED


def export(options: LogOptions, to: str | None) -> int:
    """Write events as lines of JSON.

    Each body is written byte for byte, so that the file alone suffices to verify the hashes.
    """
    query = query_of(options)
    with reading(options) as reader:
        events = reader.find(query)
        written = _print(events) if to is None else _write(to, events)
    if to is not None:
        say(f"{written} events are in {to}.")
    elif not written:
        place = journal_option(options.journal)
        say(f"No events match, so nothing was written. `callgate log list{place}` shows the calls of this journal.")
    return _exits.OK


def _print(events: Iterable[Event]) -> int:
    written = 0
    for event in events:
        if reader_is_gone():
            break
        sys.stdout.write(_as_json_line(event))
        written += 1
    return written


def _write(to: str, events: Iterable[Event]) -> int:
    written = 0
    try:
        with Path(to).open("x", encoding="utf-8", newline="\n") as file:
            for event in events:
                file.write(_as_json_line(event))
                written += 1
    except FileExistsError:
        raise UsageError(f"{to} exists and was not overwritten. Give another file with --to.") from None
    except OSError as error:
        raise UsageError(
            f"{to} cannot be written: {error.strerror}. {written} events were written. Give another file with --to."
        ) from error
    return written


def _as_json_line(event: Event) -> str:
    fields = msgspec.structs.asdict(event)
    body = fields.pop("body")
    try:
        msgspec.json.decode(body)
        fields["body"] = msgspec.Raw(body)
        line = canonical(fields).decode()
    except (ValueError, RecursionError):
        line = ""
    if not line or printable_json(line) != line:  # not JSON, on several lines, or with control characters
        fields.pop("body", None)
        line = canonical(fields | {"body_base64": base64.b64encode(body).decode()}).decode()
    return f"{printable_json(line)}\n"
