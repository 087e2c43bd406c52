"""`callgate log`: show the calls and events of a journal. Only reads, also while other processes write.

`list` shows calls, `show` the events of one call or run, `tree` events under their causes, `follow` new events as they are committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace
from rich.text import Text
from rich.tree import Tree

from callgate._call_summary import STATUS_OF_KIND, CallSummary, body_of, settle, summarise
from callgate._journal import JournalReader
from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import LogOptions
from callgate.cli._console import field, grid, output, print_json, say, status_text
from callgate.cli._id_beginnings import whole_id
from callgate.cli._interrupt_signals import remembering_interrupts
from callgate.cli._journal_location import journal_option, without_password
from callgate.cli._journal_reading import end_orphans, reading
from callgate.cli._local_times import local_time
from callgate.cli._log_query import query_of
from callgate.cli._no_calls import why_no_calls
from callgate.cli._run_names import LAST, has_run, newest_run
from callgate.cli._standard_streams import reader_is_gone
from callgate.cli._unknown_calls import arguments_text, calls_without_end, is_unsettled, summaries_of
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.events import Event

__all__ = ["event_json", "events_of", "follow", "list_calls", "show", "tree"]

_POLL_S = 0.1
_MOST_CALLS = 1_000
_TOGETHER = 200
_KIND_OF_STATUS = {status: kind for kind, status in STATUS_OF_KIND.items()}
_WITHOUT_END = ("open", "unknown", "aborted")
"""The statuses that a call without a recorded end can have."""
_MOST_EVENTS = 2_000
_DEEPEST = 30
_ARGUMENTS = 80
"""The largest number of characters that a list shows of a call's arguments."""


def list_calls(options: LogOptions, *, arguments: bool = False) -> int:
    """Print the newest matching calls; return the exit code.

    Args:
        arguments: Whether to print the calls' arguments, too.
    """
    with reading(options) as reader:
        calls, more = _calls(reader, options)
        if options.json:
            for call in calls:
                print_json(_call_json(call))
        elif calls:
            _print_calls(calls, arguments=arguments)
        else:
            say(why_no_calls(reader, query_of(options)))
        if more:
            say(f"These are the newest {len(calls)}; earlier ones match too. --limit shows more of them.", "dim")
    return _exits.OK


def _calls(reader: JournalReader, options: LogOptions) -> tuple[list[CallSummary], bool]:
    """Return the newest matching calls, oldest first, and whether earlier calls match too."""
    query = query_of(options)
    most = _MOST_CALLS if query.limit is None else query.limit
    events_of_calls = replace(_events_of_calls(query), limit=None, newest_first=True)
    uids = _newest(reader.find(events_of_calls), most + 1)
    calls = [call for call in summaries_of(reader, uids[:most]) if call.position > query.after]
    end_orphans(calls, options.journal)
    if query.field is not None and query.field[0] == "status":
        calls = _with_status(reader, query, calls, options.journal)
    _settle_repeats(reader, calls)
    calls.sort(key=lambda call: call.position)
    return calls[-most:], len(uids) > most or len(calls) > most


def _events_of_calls(query: EventQuery) -> EventQuery:
    """Return the query for the events that show which calls match. A status that no field has is the kind of an event."""
    if query.kinds:
        return query
    if query.field is not None and query.field[0] == "status" and query.field[1] in _KIND_OF_STATUS:
        return replace(query, kinds=(_KIND_OF_STATUS[str(query.field[1])],), field=None)
    return replace(query, kinds=("call.",) if query.field else ("call.received",))


def _with_status(reader: JournalReader, query: EventQuery, calls: list[CallSummary], journal: str) -> list[CallSummary]:
    """Return the calls, and those without a recorded end to which the list gives the requested status."""
    known, status = {call.uid for call in calls}, query.field and query.field[1]
    more = calls_without_end(reader, query, journal) if status in _WITHOUT_END and not query.kinds else []
    calls = [call for call in calls if query.kinds or status not in _KIND_OF_STATUS or call.status == status]
    return calls + [call for call in more if call.status == status and call.uid not in known]


def _settle_repeats(reader: JournalReader, calls: Iterable[CallSummary]) -> None:
    """Set what is known by now about the calls that were refused because the outcome of an earlier call was unknown."""
    repeats = [call for call in calls if call.status == "unknown" and call.earlier_call]
    earlier = list(dict.fromkeys(call.earlier_call for call in repeats))
    facts: dict[str, Event] = {}
    for first in range(0, len(earlier), _TOGETHER):
        query = EventQuery(calls=tuple(earlier[first : first + _TOGETHER]), kinds=("fact.settled",))
        facts |= {event.call: event for event in reader.find(query)}
    for call in repeats:
        if call.earlier_call in facts:
            settle(call, facts[call.earlier_call])


def _newest(events: Iterable[Event], most: int) -> list[str]:
    """Return the ids of the calls of these events, in order and without duplicates, at most `most`."""
    uids: dict[str, None] = {}
    for event in events:
        if event.call:
            uids[event.call] = None
        if len(uids) >= most:
            break
    return list(uids)


def _print_calls(calls: Sequence[CallSummary], *, arguments: bool) -> None:
    named = any(call.principal for call in calls)
    more = [*(["principal"] if named else []), *(["arguments"] if arguments else [])]
    table = grid("time", "call", "tool", *more, "status", "ms", "rule", right=("ms",))
    for call in calls:
        why = call.code or call.failure_class or call.command_end
        why += _unknown_text(call) or _question_text(call)
        why = ", ".join(filter(None, (why, _settlement_text(call))))
        if call.replayed:  # the tool did not run again
            why = ", ".join(filter(None, (why, f"result of {call.earlier_call or 'an earlier call'}")))
        elif call.cached:
            why = ", ".join(filter(None, (why, "from the cache")))
        status = Text.assemble(status_text(call.status, call.command_end), f" {one_line(why)}" if why else "")
        rule = "replayed" if call.replayed else one_line(call.rule)  # its result has the rule of the call that ran
        who = [one_line(call.principal, 80)] if named else []
        ran = [arguments_text(call, _ARGUMENTS)] if arguments else []
        table.add_row(local_time(call.at_ns), one_line(call.uid), one_line(call.tool), *who, *ran, status, f"{call.duration_ms:,.0f}", rule)
    output().print(table, soft_wrap=False)


def _settlement_text(call: CallSummary) -> str:
    """Return how the outcome of the call was settled, or that of the earlier call because of which it was refused."""
    if not call.settled:
        return ""
    said = call.settled.replace("_", " ")
    return f"{call.earlier_call} is settled: {said}" if call.earlier_call else f"settled: {said}"


def _question_text(call: CallSummary) -> str:
    """Return the answer to the question that the call waited for, or the question itself, if an earlier call asked it."""
    if call.status != "asked":
        return ""
    if call.question != call.uid:
        return f"again, the question of {call.question}"
    return f"answered: {call.answer}" if call.answer else ""


def _unknown_text(call: CallSummary) -> str:
    """Return whether a call with an unknown outcome may have happened itself, or was refused because an earlier one may have."""
    if call.status != "unknown" or call.settled:
        return ""
    if call.earlier_call:
        return f", not run: it is unknown whether {call.earlier_call} happened"
    later = f": the tool {call.late} later" if call.late else ""
    return f", may have happened{later}" if is_unsettled(call) else ""


def _call_json(call: CallSummary) -> dict[str, object]:
    fields = msgspec.structs.asdict(call)
    del fields["result"], fields["began"], fields["starts"], fields["ended"]
    return fields | {"duration_ms": round(call.duration_ms, 3)}


def show(identity: str, options: LogOptions) -> int:
    refuse_odd_text(id=identity)
    query = query_of(options)
    with reading(options) as reader:
        events = [event for event in events_of(reader, identity, options.journal) if query.holds(event)]
        if query.tool is not None and events:
            of_tool = {event.position for event in reader.find(replace(query, after=events[0].position - 1))}
            events = [event for event in events if event.position in of_tool]
        for event, depth in _with_depths(events):
            _print_event(event, options, indent=min(depth, 8))
        if not events:
            say(f"None of the events of {identity} match. Leave the options out to show all of them.")
        calls = summaries_of(reader, [call.uid for call in summarise(events)])
        end_orphans(calls, options.journal)
        for call in filter(is_unsettled, calls):
            _say_unsettled(call, options.journal)
    return _exits.OK


def _say_unsettled(call: CallSummary, journal: str) -> None:
    uid, place = one_line(call.uid, 120), journal_option(journal)
    say(
        f"Nobody knows whether {uid} took effect. It was started with {arguments_text(call)}. Check, then"
        f" `callgate settle {uid} --happened{place}` or `callgate settle {uid} --not-happened{place}`.",
        "yellow",
    )


def events_of(reader: JournalReader, identity: str, journal: str) -> list[Event]:
    """Return the events of a call or run, given its id, the end or the beginning of one, or `last` for the newest run."""
    identity = newest_run(reader) if identity == LAST else identity
    found = list(reader.find(EventQuery(call=identity))) or list(reader.find(EventQuery(run=identity)))
    if found:
        return found
    calls = {event.call: event.run for event in reader.find(EventQuery(kinds=("call.",)))}
    ending = [uid for uid in calls if uid.endswith(f"/{identity.lstrip('/')}")]
    if len(ending) == 1:
        return list(reader.find(EventQuery(call=ending[0])))
    if not ending and (whole := whole_id(identity, reader, calls if "/" in identity else calls.values())) != identity:
        return events_of(reader, whole, journal)
    latest = ", ".join(list(calls)[-3:])
    why = f"{len(ending)} calls have ids with this end" if ending else "no call and no run has it"
    raise UsageError(
        f"'{identity[:80]}' is not an id in this journal: {why}. The latest calls: {latest or 'none'}. See `callgate log"
        f" list{journal_option(journal)}`."
    )


def _with_depths(events: Iterable[Event]) -> list[tuple[Event, int]]:
    """Return each event with its depth: the length of the longest chain of causes among these events."""
    depths: dict[int, int] = {}
    for event in events:
        depths[event.position] = 1 + max((depths[parent] for parent in event.parents if parent in depths), default=-1)
    return [(event, depths[event.position]) for event in events]


def tree(identity: str, options: LogOptions) -> int:
    refuse_odd_text(id=identity)
    query = query_of(options)
    with reading(options) as reader:
        events = [event for event in _follow(reader, identity, options.journal) if query.holds(event)]
        _print_tree(events[: _MOST_EVENTS if query.limit is None else query.limit], len(events), identity, options)
    return _exits.OK


def _print_tree(shown: list[Event], found: int, identity: str, options: LogOptions) -> None:
    if options.json:
        for event, depth in _with_depths(shown):
            print_json(event_json(event) | {"depth": depth})
    else:
        for root in _build_trees(shown):
            output().print(root, soft_wrap=False)
    if not found:
        say(f"None of the events of {identity} match. Leave --kind out to show all of them.")
    if len(shown) < found:
        say(f"{found - len(shown)} more events followed. --limit shows more of them.", "dim")


def _follow(reader: JournalReader, identity: str, journal: str) -> list[Event]:
    """Return the events that `identity` names (a position, a call or a run), and all events that they caused."""
    if identity.isdecimal() and int(identity) < 2**63:
        own = list(reader.find(EventQuery(after=int(identity) - 1, before=int(identity) + 1)))
        if not own:
            raise UsageError(f"There is no event {identity} in this journal. See `callgate log follow --after 0{journal_option(journal)}`.")
    else:
        own = events_of(reader, identity, journal)
    later = [event for first in own[:1] for event in reader.find(EventQuery(caused_by=first.position))]
    return sorted({event.position: event for event in (*own, *later)}.values(), key=lambda event: event.position)


def _build_trees(events: Iterable[Event]) -> list[Tree]:
    """Return trees of events.

    Each event is placed under the latest of its causes that is shown, at most `_DEEPEST` levels deep.
    """
    nodes: dict[int, tuple[Tree, int]] = {}
    roots = []
    for event in events:
        cause = max((parent for parent in event.parents if parent in nodes), default=None)
        if cause is None:
            node, depth = Tree(_line(event), guide_style="dim"), 0
            roots.append(node)
        else:
            above, depth = nodes[cause]
            node = above.add(_line(event))
        nodes[event.position] = (node, depth + 1) if depth < _DEEPEST or cause is None else nodes[cause]
    return roots


def _line(event: Event) -> Text:
    body = body_of(event)
    detail = next((str(body[key]) for key in ("tool", "name", "status", "verdict", "reason") if isinstance(body.get(key), str)), "")
    return Text.assemble(
        (f"{event.position} ", "dim"),
        (field(event.kind), "bold"),
        f" {field(detail, 80)}" if detail else "",
        (f"  {field(event.call)}", "dim"),
    )


def follow(options: LogOptions, *, wait: Callable[[float], None] = time.sleep) -> int:
    """Print events as they are committed, until Ctrl-C is pressed or the reader of the output is gone."""
    query = query_of(options)
    with reading(options, to_come=True) as reader:
        position = options.after if options.after is not None else _last(reader)
        say(f"Following {without_password(options.journal)} after event {position}. Ctrl-C ends.", "dim")
        if options.run is not None and not has_run(reader, options.run):
            say(f"No run '{options.run[:80]}' is in this journal yet. Its events are shown once it starts.", "yellow")
        with suppress(KeyboardInterrupt), remembering_interrupts() as interrupted:
            while not reader_is_gone():
                for event in reader.find(replace(query, after=position)):
                    position = event.position
                    _print_event(event, options)
                    if interrupted() or reader_is_gone():
                        return _exits.OK
                if interrupted():
                    return _exits.OK
                wait(_POLL_S)
    return _exits.OK


def _last(reader: JournalReader) -> int:
    return next((event.position for event in list(reader.find(EventQuery(limit=1, newest_first=True)))), 0)


def _print_event(event: Event, options: LogOptions, indent: int = 0) -> None:
    if options.json:
        print_json(event_json(event))
        return
    margin = "  " * indent
    attempt = f" attempt {event.attempt}" if event.attempt else ""
    cause = f"  because of {', '.join(map(str, event.parents))}" if event.parents else ""
    where = f"  {local_time(event.at_ns)}  {field(event.call)}{cause}"
    screen = output()
    screen.print(Text.assemble((f"{margin}{event.position} ", "dim"), (field(event.kind), "bold"), attempt, (where, "dim")))
    for key, value in body_of(event).items():
        if value is None or value is False or value in ("", [], {}):
            continue
        if key == "traceback" and isinstance(value, str):
            screen.print(Text(f"{margin}    traceback:"))
            for line in value.splitlines():
                spaces = " " * min(len(line) - len(line.lstrip()), 8)
                screen.print(Text(f"{margin}    | {spaces}{field(line, 400)}"))
            continue
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        screen.print(Text(f"{margin}    {field(str(key))}: {field(shown, 400)}"))


def event_json(event: Event) -> dict[str, object]:
    fields = msgspec.structs.asdict(event)
    return fields | {"body": body_of(event), "at": _date(event.at_ns)}


def _date(at_ns: int) -> str | None:
    try:
        return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None
