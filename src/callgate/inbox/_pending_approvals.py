"""List the questions that wait for a human's decision, in all runs of a journal. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter

from msgspec import DecodeError, Struct

from callgate._clock import SystemClock
from callgate._journal import JournalAddress, JournalReader
from callgate._journal.event_rows import Unreadable
from callgate._journal.inbox_sender import InboxClient, open_inbox
from callgate._json import decode, json_text
from callgate._run_state.approvals import Question
from callgate._run_state.event_bodies import decode_reason
from callgate.event_queries import EventQuery
from callgate.events import Event
from callgate.inbox._recorded_answers import SentAnswer, open_record, questions_of, sent_answers

__all__ = ["PendingApproval", "call_facts", "waiting"]

_PAGE = 1_000
"""How many questions are read at once. If all of a page have expired, so have the older ones."""


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
    server: str = ""
    """The MCP server or the plugin that has the tool; empty for other tools, and if it is not recorded."""


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
    with open_record(journal) as reader, open_inbox(journal, read_only=True) as client:
        runs: dict[str, _RunQuestions] = {}
        found: list[tuple[int, PendingApproval]] = []
        with _skip_unreadable("Some questions", on_unreadable):
            for event in _open_questions(reader):
                with _skip_unreadable(f"Run '{event.run[:80]}'", on_unreadable):
                    if event.run not in runs:
                        runs[event.run] = _RunQuestions()  # empty, and so left out, if its record is damaged
                        runs[event.run] = _run_questions(reader, event.run, client)
                    run = runs[event.run]
                    if (question := run.open.get(event.call)) is not None:
                        answer = run.sent.get(question.approval_id)
                        found.append((event.position, _as_pending(reader, event, question, run.holder, answer)))
        return [one for _, one in sorted(found, key=itemgetter(0))]


@contextmanager
def _skip_unreadable(what: str, on_unreadable: Callable[[str], None] | None) -> Iterator[None]:
    """Report a damaged record that the block reads to `on_unreadable`, if there is one, instead of raising."""
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
    waiting = {uid: question for uid, question in questions_of(reader, run).items() if question.waits(now_ns)}
    return _RunQuestions(waiting, client.holder(run), sent_answers(client, run)) if waiting else _RunQuestions()


def _as_pending(reader: JournalReader, event: Event, question: Question, holder: str, sent: SentAnswer | None) -> PendingApproval:
    facts = call_facts(reader, event.call)
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
        server=facts.server,
    )


class _CallFacts(Struct):
    """What is recorded of a call."""

    tool: str = ""
    arguments: str = ""
    """The final arguments as JSON, as far as they are recorded."""
    principal: str = ""
    rule: str = ""
    server: str = ""


def call_facts(reader: JournalReader, call: str) -> _CallFacts:
    facts = _CallFacts()
    for one in reader.find(EventQuery(call=call, kinds=("call.received", "call.verdict"))):
        body = decode(one.body)
        facts.tool = str(body.get("tool") or body.get("name") or facts.tool)
        given = body.get("arguments")
        if given is not None:
            facts.arguments = given if isinstance(given, str) else json_text(given)
        facts.principal = str((body.get("scope") or {}).get("principal") or facts.principal)
        facts.rule = str(body.get("rule") or facts.rule)
        facts.server = str(body.get("server") or facts.server)
    return facts
