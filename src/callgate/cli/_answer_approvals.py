"""`callgate approvals`, `approve`, `deny`, `stop` and `kill`: list open questions, and send messages to a run.

The commands work from any terminal.

A command puts its message into the journal's inbox. If a process works on the run, that process takes the message from
there; the command waits a few seconds for this and prints the result. Otherwise the command prints how to continue the
run.
"""

from __future__ import annotations

import getpass
import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from callgate import inbox
from callgate._json import json_text
from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import read_arguments, refuse_odd_text
from callgate.cli._command_options import InboxOptions
from callgate.cli._console import grid, output, print_json, say
from callgate.cli._id_beginnings import question_beginning, run_beginning
from callgate.cli._journal_location import MEMORY, default_journal, journal_option, without_password
from callgate.cli._local_times import local_day_and_minute
from callgate.cli._run_names import is_unnamed, run_named
from callgate.errors import UsageError
from callgate.inbox import CallToRepeat, MessageOutcome, PendingApproval, SentAnswer, SentMessage

__all__ = ["given_arguments", "list_waiting", "login", "refuse_memory", "say_fate", "tell"]

_DO: dict[str, Callable[..., SentMessage]] = {"approve": inbox.approve, "deny": inbox.deny, "stop": inbox.stop, "kill": inbox.kill}
_DONE = {"approve": "Approved", "deny": "Denied", "stop": "Stopping", "kill": "Killing", "settle": "Settled"}
_LATER = {
    "approve": "The call runs when it is made again or its run is resumed",
    "deny": "The call does not run, and the model is told when its run is resumed",
    "stop": "It stops when it is resumed",
    "kill": "It ends when it is resumed",
    "settle": "It is settled when its run is resumed",
}
_HANDED_IN = {
    "approve": "The call runs when it is made again in that run, with the same arguments, tools and rules.",
    "deny": (
        "The call does not run. Made again in that run with the same id or key, it gets the denial each time; without them, an"
        " identical call gets it once."
    ),
}
_UNNAMED = (
    " The program has given the run no name: after the program has ended, nothing takes this answer, and a human is asked again. Name the"
    " run in the program, with Scope(run=...)."
)
_MOST_WAIT_S = 3_600.0
_SHOWN = 5


def list_waiting(journal: str, *, as_json: bool) -> int:
    """Print the calls that wait for a human; return the exit code."""
    refuse_memory(journal)
    damaged: list[str] = []
    found = inbox.waiting(journal, on_unreadable=damaged.append)
    _show_waiting(found, journal, as_json=as_json, whole=not damaged)
    for line in damaged:
        say(line, "red")
    return _exits.FAILED if damaged else _exits.OK


def _show_waiting(found: list[PendingApproval], journal: str, *, as_json: bool, whole: bool) -> None:
    if as_json:
        for one in found:
            print_json(msgspec.to_builtins(one))
        return
    if not found:
        say("Nothing waits for a human." if whole else "Nothing else waits for a human.")
        return
    named = tuple(name for name in ("server", "principal") if any(getattr(one, name) for one in found))
    table = grid("approval", "tool", *named, "arguments", "question", "asked", "expires", "worked on by", "answer")
    for one in found:
        table.add_row(*_row(one, named))
    output().print(table, soft_wrap=False)
    for equal in _equal_questions(found):
        shown = ", ".join(one_line(one.approval, 120) for one in equal[:_SHOWN]) + (", …" if len(equal) > _SHOWN else "")
        say(f"{len(equal)} of them ask about equal calls of one run: {shown}. Each yes lets the call run once.", "yellow")
    place = journal_option(journal)
    answers = f"`callgate approve APPROVAL{place}` or `callgate deny APPROVAL{place}` answers one"
    say(f"{answers}; `callgate log show APPROVAL{place}` tells more.")


def _equal_questions(found: Iterable[PendingApproval]) -> list[list[PendingApproval]]:
    """Return the unanswered questions that a human could take for one: a host that makes a call again under a new id asks again."""
    groups: dict[tuple[str, ...], list[PendingApproval]] = {}
    for one in (one for one in found if one.sent is None):
        groups.setdefault((one.run, one.tool, one.arguments, one.principal), []).append(one)
    return [group for group in groups.values() if len(group) > 1]


def _row(one: PendingApproval, named: Iterable[str]) -> tuple[str, ...]:
    return (
        one_line(one.approval),
        one_line(one.tool, 40),
        *(one_line(getattr(one, name), 80) for name in named),
        one_line(one.arguments, 80),
        one_line(one.question, 120),
        local_day_and_minute(one.asked_ns),
        local_day_and_minute(one.expires_ns),
        one.held_by or "nobody",
        one_line(one.refused, 160) if one.sent is None else f"{_answer_text(one.sent)}, not taken yet",
    )


def _answer_text(sent: SentAnswer) -> str:
    said = "no" if not sent.allow else "yes" if sent.arguments is None else f"yes, with {one_line(json_text(sent.arguments), 80)}"
    return f"{said} by {one_line(sent.by, 80)} at {local_day_and_minute(sent.at_ns)}"


def given_arguments(text: str) -> dict[str, object] | None:
    """Parse the value of `--arguments`. Return None if it is empty.

    Raises:
        UsageError: The value is not one JSON object.
    """
    if not text:
        return None
    given = read_arguments((text,))
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise UsageError(f"--arguments is not JSON: {error}. Give one object with all arguments of the call, or @file.") from error
    if not isinstance(value, dict):
        raise UsageError(f"--arguments is {type(value).__name__}; it must be one JSON object with all arguments of the call.")
    return value


def tell(what: str, target: str, options: InboxOptions, *, arguments: dict[str, object] | None = None, leave_out: bool = False) -> int:
    """Send the message; return the exit code.

    Args:
        arguments: For an approval: the arguments to run the call with instead of its own.
        leave_out: Whether these may lack arguments of the call.
    """
    refuse_odd_text(target=target, reason=options.reason, by=options.by)
    refuse_memory(options.journal)
    if not 0 <= options.wait <= _MOST_WAIT_S:
        raise UsageError(f"--wait is {options.wait:g}; it must be from 0 to {_MOST_WAIT_S:.0f} seconds.")
    if what in ("stop", "kill"):
        target = run_beginning(run_named(target, options.journal), options.journal)
    else:
        target = question_beginning(target, options.journal)
    more: dict[str, object] = {} if arguments is None else {"arguments": arguments, "leave_out": leave_out}
    sent = _DO[what](options.journal, target, by=options.by or login(), reason=options.reason, **more)
    return say_fate(what, target, sent, options)


def say_fate(what: str, target: str, sent: SentMessage, options: InboxOptions) -> int:
    """Wait until the message is received or refused, print the result, and return the exit code."""
    outcome = inbox.outcome(options.journal, sent.id, wait_s=options.wait) if sent.held_by else MessageOutcome()
    if options.json:
        status = "refused" if outcome.refused else "taken" if outcome.position else "waiting"
        print_json({"status": status, **msgspec.to_builtins(sent), "position": outcome.position, "refused": outcome.refused})
    else:
        _say(what, target, sent, outcome, options.journal)
    return _exits.FAILED if outcome.refused else _exits.OK


def _say(what: str, target: str, posted: SentMessage, fate: MessageOutcome, journal: str) -> None:
    if posted.replaces is not None and not fate.refused:
        say(f"This replaces an earlier answer that no process has taken: {_answer_text(posted.replaces)}.")
    if posted.left_out and not fate.refused:
        names = one_line(", ".join(posted.left_out), 200)
        say(f"Note: the call runs without {names}.", "yellow")
    if fate.refused:
        say(f"{posted.held_by}, which works on the run, refused the message: {fate.refused}", "red")
    elif fate.position:
        then = (
            f" If the call no longer waits there: {_HANDED_IN[what][0].lower()}{_HANDED_IN[what][1:]}" if posted.again is not None else ""
        )
        say(f"{_DONE[what]} {one_line(target, 120)}: {posted.held_by} has received it (event {fate.position}).{then}")
    elif posted.held_by:
        say(
            f"Sent. {posted.held_by} works on the run and has not received it yet; that process, or the one that resumes the run, will.",
            "yellow",
        )
    elif posted.again is not None:
        more = _UNNAMED if is_unnamed(posted.run) else ""
        say(f"Sent. No process works on run {one_line(posted.run, 120)} now, and it is not an agent's run. {_HANDED_IN[what]}{more}")
        if what == "approve" and posted.again.origin == "cli":
            say(f"  {_call_again(posted.run, posted.again, journal)}")
    else:
        option = "" if journal == default_journal() else f" --record {shlex.quote(without_password(journal))}"
        resume = f"`callgate resume {posted.run}{option}`, with the --model, --tools, --mcp and --plugin of the run"
        say(f"Sent. No process works on run {one_line(posted.run, 120)} now. {_LATER[what]}: {resume}.")


def _call_again(run: str, call: CallToRepeat, journal: str) -> str:
    """Return the command that makes the call again. It contains what the journal has of the call's arguments."""
    words = ["callgate", "call", call.tool, *([call.arguments] if call.arguments else []), "--run", run]
    here = "" if call.workspace == str(Path.cwd()) else call.workspace
    place = "" if journal == default_journal() else without_password(journal)
    named = (("--key", call.key), ("--principal", call.principal), ("--actor", call.actor), ("--workspace", here), ("--journal", place))
    for option, value in named:
        words += [option, value] if value else []
    return shlex.join(words)


def refuse_memory(journal: str) -> None:
    if journal == MEMORY:
        raise UsageError("A journal in memory belongs to one process; other processes cannot send messages to it. Give --journal FILE.")


def login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody at a terminal"
