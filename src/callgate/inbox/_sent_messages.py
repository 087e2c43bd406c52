"""Check a message against the record of its run, and store it in the journal's inbox.

A message that does not fit the state of the run is refused before it is sent.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import DecodeError, Struct

from callgate._clock import SystemClock
from callgate._journal import JournalAddress, JournalReader, MemoryJournal, ended_writers
from callgate._journal.inbox_sender import EDIT_CHARS, MESSAGE_CHARS, open_inbox
from callgate._json import canonical, decode
from callgate._option_checks import check
from callgate._pipeline.approval_answers import EDIT, EditMessage, check_answer, check_operator, encode_arguments
from callgate._run_state.event_bodies import Received, approval_id_of, decode_reason
from callgate._run_state.run_recovery import RunReader
from callgate._run_state.settlements import Settlement, call_in_doubt, is_settled, refuse_against_record, why_not_in_doubt
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.inbox._pending_approvals import call_facts
from callgate.inbox._recorded_answers import SentAnswer, open_record, questions_of, sent_answers, show_journal

__all__ = ["CallToRepeat", "MessageOutcome", "SentMessage", "approve", "deny", "kill", "outcome", "settle", "stop"]

_LOOK_S = 0.05
_received = msgspec.json.Decoder(Received).decode


class CallToRepeat(Struct, frozen=True, kw_only=True):
    """A call that must be submitted again for an answer to take effect, because its run is not an agent's."""

    tool: str
    arguments: str
    """The arguments as received; empty if they are not recorded completely."""
    origin: str
    """Where the call came from, such as `cli`."""
    key: str = ""
    """The caller's idempotency key, if it gave one."""
    principal: str = ""
    actor: str = ""
    workspace: str = ""


class SentMessage(Struct, frozen=True, kw_only=True):
    """A message in a journal's inbox."""

    id: int
    run: str
    held_by: str
    """The process that will record the message; empty if no process works on the run, and the message waits for the next one."""
    again: CallToRepeat | None = None
    """The call to submit again for an answer to take effect, if the run is not an agent's; None otherwise."""
    replaces: SentAnswer | None = None
    """The earlier answer to the same question that waits in the inbox and that this one replaces; None if there is none."""
    left_out: tuple[str, ...] = ()
    """The arguments that the call has and that an approval with other arguments lacks: the call runs without them."""


class MessageOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a message."""

    position: int = 0
    """The position of the event that recorded the message; 0 while the message waits."""
    refused: str = ""
    """Why the message was refused; empty if it was not."""


def approve(
    journal: JournalAddress,
    approval: str,
    *,
    by: str,
    reason: str = "",
    arguments: Mapping[str, object] | None = None,
    leave_out: bool = False,
) -> SentMessage:
    """Allow a suspended call to run once, with its own arguments or with others.

    Args:
        journal: The journal's file, its `postgresql://` address, or a `MemoryJournal` of this process.
        approval: The id of the question; `waiting` lists the open ones.
        by: Who approves. Recorded.
        reason: Why. Recorded.
        arguments: All arguments with which the call runs instead of its own; at most 65,536 characters as JSON. The
            process that works on the run validates and judges them when the call is made, and tells the model. None:
            the call's own.
        leave_out: Whether `arguments` may lack arguments that the call has; it then runs without them.

    A different approval that waits in the inbox is replaced.

    Raises:
        UsageError: No such question is open, the arguments lack some of the call's, a message cannot carry them, or a no or the same yes
            waits in the inbox already.
    """
    check_answer("inbox.approve", approval, by, reason)
    check("inbox.approve", "leave_out", leave_out, bool)
    if arguments is None:
        return _send_answer(journal, "approve", approval, by, reason)
    given = decode(encode_arguments(arguments))
    message = EditMessage(arguments=given, reason=reason[:MESSAGE_CHARS])
    return _send_answer(journal, EDIT, approval, by, canonical(message).decode(), given, leave_out=leave_out)


def deny(journal: JournalAddress, approval: str, *, by: str, reason: str = "") -> SentMessage:
    """Deny a suspended call, or withdraw an approval that no call has used. A no is final.

    The model is told, with the reason, when its run continues or its host submits the call again. Arguments and errors
    are those of `approve`, without `arguments`.
    """
    check_answer("inbox.deny", approval, by, reason)
    return _send_answer(journal, "deny", approval, by, reason)


def settle(journal: JournalAddress, call: str, *, happened: bool, by: str, reason: str = "") -> SentMessage:
    """Record whether a call with an unknown outcome took effect.

    If it did not, the same call may be submitted again. If it did, the next identical call is told so and does not run.
    `happened=False` also frees the key of the effect of a call whose tool returned a failure. A success cannot be settled by a message,
    because the call may have been in doubt when it was sent: use `engine.settle`, or `callgate settle` while no call of the run is made.

    Args:
        journal: The journal's file, its `postgresql://` address, or a `MemoryJournal` of this process.
        call: The uid of the call, or of a call that was refused because of it.
        happened: Whether the call took effect.
        by: Who says so. Recorded.
        reason: Why. Recorded.

    Raises:
        UsageError: The outcome of the call is not unknown, and it has no failure that keeps the key of its effect; or `happened=False` has
            no reason although the tool has returned since, or its code may still run.
    """
    check("inbox.settle", "happened", happened, bool)
    check_operator("inbox.settle", by, reason)
    with open_record(journal) as reader:
        first = call_in_doubt(reader.find(EventQuery(call=call)), call)
        run = first.rsplit("/", 2)[0]
        reading = RunReader(run, remember=0)
        reading.take(reader.find(EventQuery(run=run)))
        own = list(reader.find(EventQuery(call=first)))
        if is_settled(own) or not reading.state().can_settle(first, happened=happened):
            raise UsageError(why_not_in_doubt(own, first))
        refuse_against_record(own, Settlement(happened=happened, by=by, reason=reason), ended_writers(journal))
    return _send(journal, "happened" if happened else "not_happened", run, first, by, reason)


def stop(journal: JournalAddress, run: str, *, by: str, reason: str = "") -> SentMessage:
    """End a run soon: the model's answer is interrupted, a running call finishes, and no further call starts.

    Args:
        journal: The journal's file, its `postgresql://` address, or a `MemoryJournal` of this process.
        run: The id of the run.
        by: Who requests it. Recorded.
        reason: Why. Recorded, and given as the reason why the run ended.

    Raises:
        UsageError: No such run is recorded, or it has ended.
    """
    return _send_end(journal, "stop", run, by, reason)


def kill(journal: JournalAddress, run: str, *, by: str, reason: str = "") -> SentMessage:
    """End a run and its running tools now. Arguments and errors are those of `stop`."""
    return _send_end(journal, "kill", run, by, reason)


def outcome(journal: JournalAddress, message: int, *, wait_s: float = 0.0) -> MessageOutcome:
    """Return the outcome of a message, waiting up to `wait_s` seconds until it is recorded."""
    until = time.monotonic() + wait_s
    with open_record(journal) as reader, open_inbox(journal) as client:
        while not (position := client.position(message)) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        for event in reader.find(EventQuery(after=position - 1, limit=1)) if position else ():
            return MessageOutcome(position=position, refused=decode_reason(event.body).reason if event.kind == "inbox.refused" else "")
    return MessageOutcome()


def _with_journal(command: str, journal: JournalAddress) -> str:
    """Return the command for a journal; it names a file, but no address, which may have a password."""
    is_file = not isinstance(journal, MemoryJournal) and "://" not in str(journal)
    return f"`{command} --journal {shlex.quote(str(journal))}`" if is_file else f"`{command}`"


def _send_answer(
    journal: JournalAddress,
    kind: str,
    approval: str,
    by: str,
    reason: str,
    arguments: Mapping[str, object] | None = None,
    *,
    leave_out: bool = False,
) -> SentMessage:
    allow = kind != "deny"
    with open_record(journal) as reader:
        suspended = list(reader.find(EventQuery(call=approval, kinds=("call.suspended",), limit=1)))
        if not suspended:
            raise UsageError(
                f"No question '{approval[:80]}' is on record in {show_journal(journal)}. {_with_journal('callgate approvals', journal)}"
                " lists what waits."
            )
        run, approval = suspended[0].run, approval_id_of(suspended[0])
        question = questions_of(reader, run).get(approval)
        if question is None:
            raise _closed_question_error(reader, approval)
        question.refuse_closed(allow=allow, now_ns=SystemClock.wall_ns())
        with open_inbox(journal, read_only=True) as client:
            before = sent_answers(client, run).get(approval)
        _refuse_useless_answer(approval, before, allow=allow, arguments=arguments)
        left_out = _missing_arguments(reader, approval, arguments)
        if left_out and not leave_out:
            names = ", ".join(left_out)[:200]
            raise UsageError(
                f"The arguments for '{approval[:80]}' replace all of the call's, and lack {names}. Give all of them. If the call is to run"
                " without these, allow that: `--leave-out`, or `leave_out=True`. Nothing was sent."
            )
        again = None if list(reader.find(EventQuery(run=run, kinds=("run.began",), limit=1))) else _call_to_repeat(reader, approval)
    return msgspec.structs.replace(_send(journal, kind, run, approval, by, reason, again), replaces=before, left_out=left_out)


def _closed_question_error(reader: JournalReader, approval: str) -> UsageError:
    """Return the error for an answer to a question that is closed or already used."""
    for closed in reader.find(EventQuery(call=approval, kinds=("approval.closed",), limit=1)):
        why = decode_reason(closed.body).reason
        return UsageError(f"The question '{approval[:80]}' was closed without an answer: {why}. Nothing was sent.")
    return UsageError(f"The question '{approval[:80]}' was answered, and its call has continued. Nothing was sent.")


def _missing_arguments(reader: JournalReader, call: str, given: Mapping[str, object] | None) -> tuple[str, ...]:
    """Return the names of the call's arguments that are not among the given ones."""
    if given is None:
        return ()
    try:
        own = decode(call_facts(reader, call).arguments)
    except DecodeError:  # not recorded completely
        return ()
    return tuple(name for name in own if name not in given) if isinstance(own, dict) else ()


def _call_to_repeat(reader: JournalReader, call: str) -> CallToRepeat | None:
    for event in reader.find(EventQuery(call=call, kinds=("call.received",), limit=1)):
        received = _received(event.body)
        scope = {key: str(value) for key, value in (received.scope or {}).items() if key in ("principal", "actor", "workspace")}
        whole = "" if received.arguments_bytes else received.arguments
        return CallToRepeat(tool=received.name, arguments=whole, origin=received.origin, key=received.idempotency_key, **scope)
    return None


def _send_end(journal: JournalAddress, kind: str, run: str, by: str, reason: str) -> SentMessage:
    check_operator(f"inbox.{kind}", by, reason)
    with open_record(journal) as reader:
        last = list(reader.find(EventQuery(run=run, newest_first=True, limit=1)))
        if not last:
            for event in reader.find(EventQuery(call=run, limit=1)):
                raise UsageError(f"'{run[:80]}' is a call. Give its run, '{event.run[:80]}': a {kind} is for all calls of a run.")
            lists = _with_journal("callgate log list", journal)
            raise UsageError(f"No run '{run[:80]}' is on record in {show_journal(journal)}. {lists} shows the runs.")
        ended = list(reader.find(EventQuery(run=run, kinds=("run.began", "run.resumed", "run.ended"), newest_first=True, limit=1)))
    for event in ended:
        status = decode(event.body).get("turn_status") if event.kind == "run.ended" else "waiting"
        if status != "waiting":
            raise UsageError(f"Run '{run[:80]}' is over: it ended '{status}'. There is nothing to {kind}.")
    if not ended:
        with open_inbox(journal) as client:
            if not client.holder(run):
                raise UsageError(f"Nobody works on run '{run[:80]}', and no agent can continue it. There is nothing to {kind}.")
    return _send(journal, kind, run, run, by, reason)


def _send(
    journal: JournalAddress, kind: str, run: str, target: str, by: str, reason: str, again: CallToRepeat | None = None
) -> SentMessage:
    if not by.strip():
        raise UsageError("`by` is empty. Give the name of the person or program that sends this.")
    if kind == EDIT and len(reason) > EDIT_CHARS:
        raise UsageError(f"The arguments have {len(reason):,} characters as JSON; a message carries {EDIT_CHARS:,}. Use `engine.approve`.")
    with open_inbox(journal) as client:
        id = client.send(run=run, kind=kind, target=target, actor=by, reason=reason, at_ns=SystemClock.wall_ns())
        return SentMessage(id=id, run=run, held_by=client.holder(run), again=again)


def _refuse_useless_answer(approval: str, sent: SentAnswer | None, *, allow: bool, arguments: Mapping[str, object] | None) -> None:
    """Check that an answer differs from the one that waits in the inbox, and that this is not a no.

    Raises:
        UsageError: It would have no effect.
    """
    if sent is None or (sent.allow and (not allow or sent.arguments != arguments)):
        return
    said = "no" if not sent.allow else "yes, with these arguments," if sent.arguments is not None else "yes"
    at = datetime.fromtimestamp(sent.at_ns / 1e9, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    then = "`deny` withdraws it while the call has not run." if sent.allow else "A no is final: a new call would ask again."
    fact = f"The question '{approval[:80]}' was answered with {said} already, by {sent.by[:80]} at {at}."
    raise UsageError(f"{fact} {then} Nothing was sent.")
