"""`callgate settle`: record whether a call with an unknown outcome took effect.

If another process works on the call's run, this command sends it a message through the journal's inbox. Otherwise this
command writes the record itself. Without a call, it lists those that somebody has to settle.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable

from callgate import inbox
from callgate._call_summary import CallSummary, summarise
from callgate._journal import ended_writers, open_reader
from callgate._run_state.settlements import call_in_doubt
from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._answer_approvals import login, refuse_memory, say_fate
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import InboxOptions
from callgate.cli._console import grid, output, print_json, say
from callgate.cli._id_beginnings import call_beginning
from callgate.cli._journal_location import CommandJournal, journal_option
from callgate.cli._local_times import local_day_and_minute
from callgate.cli._unknown_calls import arguments_text, unsettled_calls
from callgate.engine import Engine
from callgate.errors import RunHeld, UsageError
from callgate.event_queries import EventQuery

__all__ = ["list_unsettled", "settle_call"]

_THEN = {
    True: "The next call like it in run {run} gets that as its result and does not run.",
    False: "The same call may be sent again in run {run}.",
}
_THEN_FOR_KEY = {
    True: "Every call with the same key of its effect, in any run, gets that as its result and does not run.",
    False: "A call with the same key of its effect may be sent again, in any run.",
}

_ANSWER_CHARS = 400


def list_unsettled(options: InboxOptions) -> int:
    """Print the calls that have to be settled; return the exit code."""
    refuse_memory(options.journal)
    reader = open_reader(options.journal)
    try:
        calls = unsettled_calls(reader, options.journal)
    finally:
        reader.close()
    if options.json:
        for call in calls:
            print_json(_as_json(call))
    elif calls:
        has_ended = ended_writers(options.journal)
        named = any(call.principal for call in calls)
        table = grid("call", "tool", *(["principal"] if named else []), "arguments", "started", "why it is unknown")
        for call in calls:
            who, started = [one_line(call.principal, 80)] if named else [], local_day_and_minute(call.at_ns)
            table.add_row(call.uid, call.tool, *who, arguments_text(call), started, _why_unknown(call, has_ended))
        output().print(table, soft_wrap=False)
        place = journal_option(options.journal)
        say(f"Check each, then `callgate settle CALL --happened{place}` or `callgate settle CALL --not-happened{place}`.")
    else:
        say("No call has to be settled: no outcome is unknown.")
    return _exits.OK


def _why_unknown(call: CallSummary, has_ended: Callable[[str], bool]) -> str:
    """Return why the outcome is unknown, with what has become known since."""
    why = one_line(call.error or call.code, 200)
    if call.late:
        answer = f": {one_line(call.late_answer, _ANSWER_CHARS).removesuffix('.')}" if call.late_answer else ""
        when = local_day_and_minute(call.late_ns)
        return f"The tool {one_line(call.late, 40)} later, at {when}{answer}. That answer was discarded. Before that: {why}"
    if call.abandoned and call.writer and has_ended(call.writer):
        return f"Its process has ended since, and its code with it. Before that: {why}"
    return why


def _as_json(call: CallSummary) -> dict[str, object]:
    fields = ("uid", "run", "tool", "principal", "arguments", "received", "at_ns", "code", "error")
    late = ("late", "late_ns", "late_answer")
    return {name: getattr(call, name) for name in (*fields, *late, "effect_key")}


def settle_call(call: str, happened: bool | None, options: InboxOptions) -> int:
    """Record or send the settlement; return the exit code."""
    place = journal_option(options.journal)
    if not call:
        raise UsageError(f"Name the call that you have checked. `callgate settle{place}` lists the calls that must be settled.")
    refuse_odd_text(call=call, reason=options.reason, by=options.by)
    refuse_memory(options.journal)
    if happened is None:
        look = f"`callgate log show {shlex.quote(call)}{place}`"
        raise UsageError(f"Say what you found out: --happened or --not-happened. {look} shows what the call was to do.")
    by = options.by or login()
    found = _find_call(call_beginning(call, options.journal), options.journal)
    try:
        asyncio.run(_settle(found.uid, happened, by, options))
    except RunHeld:
        sent = inbox.settle(options.journal, found.uid, happened=happened, by=by, reason=options.reason)
        return say_fate("settle", found.uid, sent, options)
    if options.json:
        print_json({"status": "settled", "call": found.uid, "run": found.run, "happened": happened, "by": by})
    else:
        said = "happened" if happened else "did not happen"
        then = (_THEN_FOR_KEY if found.effect_key else _THEN)[happened].format(run=one_line(found.run, 120))
        say(f"Settled: {one_line(found.uid, 120)} ({one_line(found.tool, 80)}) {said}. {then}")
    return _exits.OK


def _find_call(call: str, journal: str) -> CallSummary:
    """Return the summary of the call that `call` names."""
    reader = open_reader(journal)
    try:
        uid = call_in_doubt(reader.find(EventQuery(call=call)), call)
        events = list(reader.find(EventQuery(call=uid)))
    finally:
        reader.close()
    if not events:
        lists = f"`callgate log list{journal_option(journal)}` shows the calls"
        raise UsageError(f"No call '{call[:80]}' is on record, so nothing of it is in doubt. {lists}. Nothing was changed.")
    return summarise(events)[0]


async def _settle(uid: str, happened: bool, by: str, options: InboxOptions) -> None:
    record = CommandJournal.open(options.journal)
    async with Engine(journal=record.journal, blobs=record.blobs) as engine:
        await engine.settle(uid, happened=happened, by=by, reason=options.reason)
