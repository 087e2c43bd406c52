"""Send messages to a run from another process: answer its questions, settle its calls, stop it, or kill it.

A message is stored in the journal's inbox. The process that works on the run records the message in an event, exactly
once, and acts on it at once. If no process works on the run, the message waits for the next process that does. Each
message is checked against the record before it is sent, and refused if it does not fit the state of the run. This
module runs no calls and needs no engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from operator import itemgetter

import msgspec
from msgspec import DecodeError, Struct

from callgate._clock import SystemClock
from callgate._journal import JournalAddress, JournalReader, MemoryJournal, ended_writers, open_reader
from callgate._journal.event_rows import Unreadable
from callgate._journal.inbox_sender import EDIT_CHARS, MESSAGE_CHARS, InboxClient, open_inbox
from callgate._json import canonical, decode, json_text
from callgate._option_checks import check
from callgate._pipeline.approval_answers import ANSWERS, EDIT, EditMessage, answer_of, check_answer, check_said, edited_arguments
from callgate._run_state.approvals import Question
from callgate._run_state.event_bodies import Received, approval_id_of, decode_reason
from callgate._run_state.run_recovery import RunReader
from callgate._run_state.settlements import Settlement, call_in_doubt, is_settled, refuse_against_record, why_not_in_doubt
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.events import Event

__all__ = [
    "CallToRepeat",
    "MessageOutcome",
    "PendingApproval",
    "SentAnswer",
    "SentMessage",
    "approve",
    "deny",
    "kill",
    "outcome",
    "settle",
    "stop",
    "waiting",
]

_PAGE = 1_000
"""How many questions are read at once. If all of a page have expired, so have the older ones."""
_LOOK_S = 0.05
_received = msgspec.json.Decoder(Received).decode


class SentAnswer(Struct, frozen=True, kw_only=True):
    """An answer to a question that waits in the inbox. No process has recorded it, so it has had no effect yet."""

    allow: bool
    by: str
    at_ns: int
    """When it was sent, in UTC nanoseconds by the sender's clock."""
    arguments: dict[str, object] | None = None
    """The arguments with which it allows the call instead of its own; None for its own."""


class PendingApproval(Struct, frozen=True, kw_only=True):
    """A call that waits for the decision of a human."""

    approval: str
    """The id of the question, which is the uid of the call."""
    run: str
    tool: str
    arguments: str
    """The final arguments as JSON, about which the human decides. If an older callgate wrote the record: the arguments
    as received.
    """
    question: str
    asked_ns: int
    """When the question was asked, in UTC nanoseconds."""
    expires_ns: int
    """When the question expires, in UTC nanoseconds."""
    held_by: str
    """The process that works on the run; empty if none does."""
    sent: SentAnswer | None = None
    """The answer that waits in the inbox; None if nobody has sent one."""
    refused: str = ""
    """Whose answer with other arguments could not be used, and why; empty if there is none."""
    principal: str = ""
    """On whose behalf the call was made; empty if it is not recorded."""
    rule: str = ""
    """The rule that asks; empty if it is not recorded."""


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


def waiting(journal: JournalAddress, *, on_unreadable: Callable[[str], None] | None = None) -> list[PendingApproval]:
    """Return the open questions, the oldest first: those that nobody has answered and that have not expired.

    Does not require the right to write to the journal.

    Args:
        journal: The journal's file, its `postgresql://` address, or a `MemoryJournal` of this process.
        on_unreadable: Called with one sentence for each run that is left out because its record is damaged. None: a
            damaged record is an error.

    Raises:
        UsageError: There is no journal, or it cannot be read.
    """
    with _reading(journal) as reader, open_inbox(journal, read_only=True) as client:
        runs: dict[str, _RunQuestions] = {}
        found: list[tuple[int, PendingApproval]] = []
        with _passing_over("Some questions", on_unreadable):
            for event in _open_questions(reader):
                with _passing_over(f"Run '{event.run[:80]}'", on_unreadable):
                    if event.run not in runs:
                        runs[event.run] = _RunQuestions()  # empty, and so left out, if its record is damaged
                        runs[event.run] = _run_questions(reader, event.run, client)
                    run = runs[event.run]
                    if (question := run.open.get(event.call)) is not None:
                        answer = run.sent.get(question.approval_id)
                        found.append((event.position, _as_pending(reader, event, question, run.holder, answer)))
        return [one for _, one in sorted(found, key=itemgetter(0))]


@contextmanager
def _passing_over(what: str, on_unreadable: Callable[[str], None] | None) -> Iterator[None]:
    try:
        yield
    except (DecodeError, Unreadable) as error:
        if on_unreadable is None:
            raise
        why = error.__cause__ if isinstance(error, Unreadable) else error
        on_unreadable(f"{what} cannot be read, and what waits there is not shown: {why}. `callgate log verify` names the event.")


class _RunQuestions(Struct):
    """What is known of a run's questions: the open ones, who works on the run, and the answers that wait in the inbox."""

    open: Mapping[str, Question] = {}
    holder: str = ""
    sent: Mapping[str, SentAnswer] = {}


def _open_questions(reader: JournalReader) -> Iterator[Event]:
    """Yield the events of the questions that have not expired, the newest first."""
    now_ns, before = SystemClock.wall_ns(), None
    while True:
        page = list(reader.find(EventQuery(kinds=("call.suspended",), newest_first=True, before=before, limit=_PAGE)))
        unexpired = [event for event in page if not _has_expired(event, now_ns)]
        yield from unexpired
        if len(page) < _PAGE or not unexpired:
            return
        before = page[-1].position


def _has_expired(event: Event, now_ns: int) -> bool:
    try:
        expires_ns = (decode_reason(event.body).details or {}).get("expires_at")
    except DecodeError:  # its run says so
        return False
    return isinstance(expires_ns, int) and expires_ns <= now_ns


def _run_questions(reader: JournalReader, run: str, client: InboxClient) -> _RunQuestions:
    now_ns = SystemClock.wall_ns()
    waiting = {uid: question for uid, question in _questions(reader, run).items() if question.waits(now_ns)}
    return _RunQuestions(waiting, client.holder(run), _sent_answers(client, run)) if waiting else _RunQuestions()


def approve(
    journal: JournalAddress, approval: str, *, by: str, reason: str = "", arguments: Mapping[str, object] | None = None
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

    A different approval that waits in the inbox is replaced.

    Raises:
        UsageError: No such question is open, a message cannot carry the arguments, or a no or the same yes waits in the
            inbox already.
    """
    check_answer("inbox.approve", approval, by, reason)
    if arguments is None:
        return _answer(journal, "approve", approval, by, reason)
    given = decode(edited_arguments(arguments))
    message = EditMessage(arguments=given, reason=reason[:MESSAGE_CHARS])
    return _answer(journal, EDIT, approval, by, canonical(message).decode(), given)


def deny(journal: JournalAddress, approval: str, *, by: str, reason: str = "") -> SentMessage:
    """Deny a suspended call, or withdraw an approval that no call has used. A no is final.

    The model is told, with the reason, when its run continues or its host submits the call again. Arguments and errors
    are those of `approve`, without `arguments`.
    """
    check_answer("inbox.deny", approval, by, reason)
    return _answer(journal, "deny", approval, by, reason)


def settle(journal: JournalAddress, call: str, *, happened: bool, by: str, reason: str = "") -> SentMessage:
    """Record whether a call with an unknown outcome took effect.

    If it did not, the same call may be submitted again. If it did, the next identical call is told so and does not run.
    `happened=False` also frees the key of the effect of a call whose tool returned a failure.

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
    check_said("inbox.settle", by, reason)
    with _reading(journal) as reader:
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
    return _end(journal, "stop", run, by, reason)


def kill(journal: JournalAddress, run: str, *, by: str, reason: str = "") -> SentMessage:
    """End a run and its running tools now. Arguments and errors are those of `stop`."""
    return _end(journal, "kill", run, by, reason)


def outcome(journal: JournalAddress, message: int, *, wait_s: float = 0.0) -> MessageOutcome:
    """Return the outcome of a message, waiting up to `wait_s` seconds until it is recorded."""
    until = time.monotonic() + wait_s
    with _reading(journal) as reader, open_inbox(journal) as client:
        while not (position := client.position(message)) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        for event in reader.find(EventQuery(after=position - 1, limit=1)) if position else ():
            return MessageOutcome(position=position, refused=decode_reason(event.body).reason if event.kind == "inbox.refused" else "")
    return MessageOutcome()


def _answer(
    journal: JournalAddress, kind: str, approval: str, by: str, reason: str, arguments: Mapping[str, object] | None = None
) -> SentMessage:
    allow = kind != "deny"
    with _reading(journal) as reader:
        asked = list(reader.find(EventQuery(call=approval, kinds=("call.suspended",), limit=1)))
        if not asked:
            raise UsageError(
                f"No question '{approval[:80]}' is on record in {_show_journal(journal)}. `callgate approvals` lists what waits."
            )
        run, approval = asked[0].run, approval_id_of(asked[0])
        question = _questions(reader, run).get(approval)
        if question is None:
            raise _question_is_over(reader, approval)
        question.refuse_closed(allow=allow, now_ns=SystemClock.wall_ns())
        with open_inbox(journal, read_only=True) as client:
            before = _sent_answers(client, run).get(approval)
        _refuse_answered(approval, before, allow=allow, arguments=arguments)
        left_out = _left_out(reader, approval, arguments)
        again = None if list(reader.find(EventQuery(run=run, kinds=("run.began",), limit=1))) else _again(reader, approval)
    return msgspec.structs.replace(_send(journal, kind, run, approval, by, reason, again), replaces=before, left_out=left_out)


def _question_is_over(reader: JournalReader, approval: str) -> UsageError:
    """Return the error for an answer to a question that is closed or already used."""
    for closed in reader.find(EventQuery(call=approval, kinds=("approval.closed",), limit=1)):
        why = decode_reason(closed.body).reason
        return UsageError(f"The question '{approval[:80]}' was closed without an answer: {why}. Nothing was sent.")
    return UsageError(f"The question '{approval[:80]}' was answered, and its call has continued. Nothing was sent.")


def _left_out(reader: JournalReader, call: str, given: Mapping[str, object] | None) -> tuple[str, ...]:
    """Return the names of the call's arguments that are not among the given ones."""
    if given is None:
        return ()
    try:
        own = decode(_call_facts(reader, call).arguments)
    except DecodeError:  # not recorded completely
        return ()
    return tuple(name for name in own if name not in given) if isinstance(own, dict) else ()


def _again(reader: JournalReader, call: str) -> CallToRepeat | None:
    for event in reader.find(EventQuery(call=call, kinds=("call.received",), limit=1)):
        received = _received(event.body)
        scope = {key: str(value) for key, value in (received.scope or {}).items() if key in ("principal", "actor", "workspace")}
        whole = "" if received.arguments_bytes else received.arguments
        return CallToRepeat(tool=received.name, arguments=whole, origin=received.origin, key=received.idempotency_key, **scope)
    return None


def _end(journal: JournalAddress, kind: str, run: str, by: str, reason: str) -> SentMessage:
    check_said(f"inbox.{kind}", by, reason)
    with _reading(journal) as reader:
        last = list(reader.find(EventQuery(run=run, newest_first=True, limit=1)))
        if not last:
            raise UsageError(f"No run '{run[:80]}' is on record in {_show_journal(journal)}. `callgate log list` shows the runs.")
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


def _questions(reader: JournalReader, run: str) -> dict[str, Question]:
    reading = RunReader(run, remember=0)
    reading.take(reader.find(EventQuery(run=run)))
    return reading.questions


def _sent_answers(client: InboxClient, run: str) -> dict[str, SentAnswer]:
    """Return the answers that wait in the inbox, by question. A no counts before a yes, else the later one counts."""
    found: dict[str, SentAnswer] = {}
    for message in client.unrecorded(run):
        if message.kind in ANSWERS and ((before := found.get(message.target)) is None or before.allow):
            with suppress(UsageError):  # the process that takes the message refuses it
                answer = answer_of(message)
                given = decode(answer.arguments) if answer.arguments else None
                found[message.target] = SentAnswer(allow=answer.allow, by=answer.by, at_ns=message.at_ns, arguments=given)
    return found


def _refuse_answered(approval: str, sent: SentAnswer | None, *, allow: bool, arguments: Mapping[str, object] | None) -> None:
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


def _as_pending(reader: JournalReader, event: Event, question: Question, holder: str, sent: SentAnswer | None) -> PendingApproval:
    facts = _call_facts(reader, event.call)
    return PendingApproval(
        approval=question.approval_id,
        run=event.run,
        tool=facts.tool,
        arguments=facts.arguments,
        question=decode_reason(event.body).reason,
        asked_ns=event.at_ns,
        expires_ns=question.expires_at,
        held_by=holder,
        sent=sent,
        refused=question.refused,
        principal=facts.principal,
        rule=facts.rule,
    )


class _CallFacts(Struct):
    """What is recorded of a call."""

    tool: str = ""
    arguments: str = ""
    """The final arguments as JSON, as far as they are recorded."""
    principal: str = ""
    rule: str = ""


def _call_facts(reader: JournalReader, call: str) -> _CallFacts:
    facts = _CallFacts()
    for one in reader.find(EventQuery(call=call, kinds=("call.received", "call.verdict"))):
        body = decode(one.body)
        facts.tool = str(body.get("tool") or body.get("name") or facts.tool)
        given = body.get("arguments")
        if given is not None:
            facts.arguments = given if isinstance(given, str) else json_text(given)
        facts.principal = str((body.get("scope") or {}).get("principal") or facts.principal)
        facts.rule = str(body.get("rule") or facts.rule)
    return facts


@contextmanager
def _reading(journal: JournalAddress) -> Iterator[JournalReader]:
    reader = open_reader(journal)
    try:
        yield reader
    except DecodeError as error:
        raise UsageError(f"{_show_journal(journal)} has an event that cannot be read: {error}. `callgate log verify` names it.") from error
    finally:
        reader.close()


def _show_journal(journal: JournalAddress) -> str:
    return "memory" if isinstance(journal, MemoryJournal) else str(journal).partition("?")[0].rpartition("@")[2]
