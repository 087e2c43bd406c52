"""`callgate log`: what the journal says. Reads only, beside whoever writes; every line is derived from events.

`list` shows calls, `show` one call or run as a tree of causes, `follow` what comes as it comes, `verify` whether nothing was changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from rich.text import Text

from callgate._journal import Reader, open_reader
from callgate._printable import one_line, printable
from callgate._summary import CallSummary, body_of, summarise
from callgate.cli import _exits
from callgate.cli._arguments import refuse_odd_text
from callgate.cli._consoles import grid, output, print_json, say, status_text
from callgate.cli._streams import reader_is_gone
from callgate.errors import UsageError
from callgate.events import Event
from callgate.queries import EventQuery

__all__ = ["LogOptions", "follow", "list_calls", "show", "verify_chain"]

_POLL_S = 0.1


class LogOptions(Struct, frozen=True, kw_only=True):
    journal: str
    run: str | None = None
    kind: str | None = None
    tool: str | None = None
    after: int | None = None
    json: bool = False


@contextmanager
def _reader(options: LogOptions) -> Iterator[Reader]:
    refuse_odd_text(journal=options.journal, run=options.run)
    connection = open_reader(options.journal)
    try:
        yield connection
    finally:
        connection.close()


def list_calls(options: LogOptions) -> int:
    with _reader(options) as reader:
        calls = [call for call in summarise(reader.find(EventQuery(run=options.run))) if _wanted(call, options)]
    if options.json:
        for call in calls:
            print_json(_call_json(call))
        return _exits.OK
    if not calls:
        say("No calls match. `callgate log list --journal FILE` shows those of another journal.")
        return _exits.OK
    table = grid("time", "call", "tool", "status", "ms", "rule", right=("ms",))
    for call in calls:
        why = call.code or call.failure_class
        status = Text.assemble(status_text(call.status), f" {one_line(why)}" if why else "")
        table.add_row(_clock(call.at_ns), one_line(call.uid), one_line(call.tool), status, f"{call.duration_ms:,.0f}", one_line(call.rule))
    output().print(table, soft_wrap=False)
    return _exits.OK


def _wanted(call: CallSummary, options: LogOptions) -> bool:
    if call.position <= (options.after or 0):
        return False
    return options.tool in (None, call.tool) and (options.kind is None or options.kind in call.kinds)


def _call_json(call: CallSummary) -> dict[str, object]:
    fields = msgspec.structs.asdict(call)
    del fields["result"], fields["began"], fields["starts"], fields["ended"]
    return fields | {"duration_ms": round(call.duration_ms, 3)}


def show(identity: str, options: LogOptions) -> int:
    refuse_odd_text(id=identity)
    with _reader(options) as reader:
        events = [event for event in _events_of(reader, identity) if _matches(event, options)]
    depths: dict[int, int] = {}
    for event in events:
        depths[event.position] = 1 + max((depths[parent] for parent in event.parents if parent in depths), default=-1)
        _print_event(event, options, indent=min(depths[event.position], 8))
    return _exits.OK


def _events_of(reader: Reader, identity: str) -> list[Event]:
    """The events of the call or run with this id, or of the one call whose id ends so."""
    found = list(reader.find(EventQuery(call=identity))) or list(reader.find(EventQuery(run=identity)))
    if found:
        return found
    calls = dict.fromkeys(event.call for event in reader.find(EventQuery()) if event.call)
    ending = [uid for uid in calls if uid.endswith(f"/{identity.lstrip('/')}")]
    if len(ending) == 1:
        return list(reader.find(EventQuery(call=ending[0])))
    latest = ", ".join(list(calls)[-3:])
    why = f"{len(ending)} calls end so" if ending else "no call and no run has it"
    raise UsageError(f"'{identity[:80]}' is not an id here: {why}. The latest calls: {latest or 'none'}. See `callgate log list`.")


def _matches(event: Event, options: LogOptions) -> bool:
    if options.run is not None and event.run != options.run:
        return False
    if options.kind is not None and not event.kind.startswith(options.kind):
        return False
    return options.tool is None or options.tool in (body_of(event).get("tool"), body_of(event).get("name"))


def follow(options: LogOptions, *, wait: Callable[[float], None] = time.sleep) -> int:
    """Print events as they are committed, until Ctrl-C, or until nobody reads them."""
    with _reader(options) as reader:
        position = options.after if options.after is not None else _last(reader)
        say(f"Following {options.journal} after event {position}. Ctrl-C ends.", "dim")
        try:
            while not reader_is_gone():
                for event in reader.find(EventQuery(run=options.run, after=position)):
                    position = event.position
                    if _matches(event, options):
                        _print_event(event, options)
                wait(_POLL_S)
        except KeyboardInterrupt:
            pass
    return _exits.OK


def _last(reader: Reader) -> int:
    return next((event.position for event in reader.find(EventQuery(limit=1, newest_first=True))), 0)


def _print_event(event: Event, options: LogOptions, indent: int = 0) -> None:
    if options.json:
        print_json(_event_json(event))
        return
    margin = "  " * indent
    attempt = f" attempt {event.attempt}" if event.attempt else ""
    cause = f"  because of {', '.join(map(str, event.parents))}" if event.parents else ""
    head = (f"{margin}{event.position} ", "dim"), (event.kind, "bold"), attempt, (f"  {_clock(event.at_ns)}  {event.call}{cause}", "dim")
    screen = output()
    screen.print(Text.assemble(*((printable(part[0]), part[1]) if isinstance(part, tuple) else printable(part) for part in head)))
    for key, value in body_of(event).items():
        if value is None or value is False or value in ("", [], {}):
            continue
        shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        screen.print(Text(f"{margin}    {printable(str(key))}: {one_line(shown, 400)}"))


def _event_json(event: Event) -> dict[str, object]:
    fields = msgspec.structs.asdict(event)
    return fields | {"body": body_of(event), "at": _date(event.at_ns)}


def _date(at_ns: int) -> str | None:
    try:
        return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


def _clock(at_ns: int) -> str:
    try:
        return datetime.fromtimestamp(at_ns / 1e9).astimezone().strftime("%H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):  # no clock shows it
        return "?"


def verify_chain(options: LogOptions) -> int:
    with _reader(options) as reader:
        broken = reader.verify()
        events = _last(reader)
    holds = broken is None
    if options.json:
        print_json({"holds": holds, "events": events, "broken": broken})
    elif broken is None:
        output().print(Text(f"{options.journal}: {events} events, every hash, number and cause holds."))
    else:
        say(f"{options.journal} does not hold at event {broken.position}: {broken.why}. It was changed after it was written.", "red")
    return _exits.OK if holds else _exits.FAILED
