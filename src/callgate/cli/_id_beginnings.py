"""Find the one id on record that begins with what a person has typed, for the commands that act on a call, a question or a run.

What is an id itself is never taken for the beginning of another one. Only reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from callgate._journal import JournalReader
from callgate._run_state.event_bodies import approval_id_of
from callgate._terminal_text import one_line
from callgate.cli._run_names import LAST, has_run
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.inbox._recorded_answers import open_record

__all__ = ["call_beginning", "question_beginning", "run_beginning", "whole_id"]

_SHORTEST = 4
_SHOWN = 5


def whole_id(given: str, reader: JournalReader, ids: Iterable[str]) -> str:
    """Return the one of these ids that begins with `given`; `given` itself if none does, or if it is short or one of them.

    Raises:
        UsageError: Several begin with it, or it is the id of a run and these are not.
    """
    if len(given) < _SHORTEST or given == LAST or list(reader.find(EventQuery(call=given, limit=1))):
        return given
    found = [one for one in dict.fromkeys(ids) if one.startswith(given)]
    if not found or given in found:
        return given
    is_run = has_run(reader, given)
    if len(found) > 1 or is_run:
        what = "is the id of a run" if is_run else "is the beginning of several ids"
        latest = ", ".join(one_line(one, 120) for one in found[-_SHOWN:])
        more = f", and {len(found) - _SHOWN} earlier ones" if len(found) > _SHOWN else ""
        raise UsageError(f"'{given[:80]}' {what}. Give the whole id of one of these: {latest}{more}.")
    return found[0]


def question_beginning(given: str, journal: str) -> str:
    """Return the id of the question that `given` means.

    Answered questions count, too: else the beginning of one that was answered meanwhile would mean the next question, unseen.

    Raises:
        UsageError: Several ids begin with it, or it is the id of a run.
    """
    with open_record(journal) as reader:
        return whole_id(given, reader, (approval_id_of(event) for event in reader.find(EventQuery(kinds=("call.suspended",)))))


def call_beginning(given: str, journal: str) -> str:
    """Return the id of the call that `given` means, among all calls on record. Errors are those of `question_beginning`."""
    with open_record(journal) as reader:
        return whole_id(given, reader, (event.call for event in reader.find(EventQuery(kinds=("call.received",)))))


def run_beginning(given: str, journal: str) -> str:
    """Return the id of the run that `given` means, among all runs on record. Errors are those of `question_beginning`."""
    with open_record(journal) as reader:
        return whole_id(given, reader, (event.run for event in reader.find(EventQuery(kinds=("run.began", "call.received")))))
