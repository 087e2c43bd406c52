"""Read what a journal has of a run's questions, and of the answers that wait for it in the inbox. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import DecodeError, Struct

from callgate._journal import JournalAddress, JournalReader, MemoryJournal, open_reader
from callgate._journal.inbox_sender import InboxClient
from callgate._json import decode
from callgate._pipeline.approval_answers import ANSWERS, read_answer
from callgate._run_state.approvals import Question
from callgate._run_state.run_recovery import RunReader
from callgate.errors import UsageError
from callgate.event_queries import EventQuery

__all__ = ["SentAnswer", "open_record", "questions_of", "sent_answers", "show_journal"]


class SentAnswer(Struct, frozen=True, kw_only=True):
    """An answer to a question that waits in the inbox. No process has recorded it, so it has had no effect yet."""

    allow: bool
    by: str
    at_ns: int
    """When it was sent, in UTC nanoseconds by the sender's clock."""
    arguments: dict[str, object] | None = None
    """The arguments with which it allows the call instead of its own; None for its own."""


def questions_of(reader: JournalReader, run: str) -> dict[str, Question]:
    reading = RunReader(run, remember=0)
    reading.take(reader.find(EventQuery(run=run)))
    return reading.questions


def sent_answers(client: InboxClient, run: str) -> dict[str, SentAnswer]:
    """Return the answers that wait in the inbox, by question. A no counts before a yes, else the later one counts."""
    found: dict[str, SentAnswer] = {}
    for message in client.unrecorded(run):
        if message.kind in ANSWERS and ((before := found.get(message.target)) is None or before.allow):
            with suppress(UsageError):  # the process that takes the message refuses it
                answer = read_answer(message)
                given = decode(answer.arguments) if answer.arguments else None
                found[message.target] = SentAnswer(allow=answer.allow, by=answer.by, at_ns=message.at_ns, arguments=given)
    return found


@contextmanager
def open_record(journal: JournalAddress) -> Iterator[JournalReader]:
    reader = open_reader(journal)
    try:
        yield reader
    except DecodeError as error:
        raise UsageError(f"{show_journal(journal)} has an event that cannot be read: {error}. `callgate log verify` names it.") from error
    finally:
        reader.close()


def show_journal(journal: JournalAddress) -> str:
    return "memory" if isinstance(journal, MemoryJournal) else str(journal).partition("?")[0].rpartition("@")[2]
