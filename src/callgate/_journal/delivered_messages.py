"""Remember which messages of the inbox one opened journal has delivered, so that each is delivered once and recorded once.

Stands between an `Inbox`, which stores messages, and the engine that uses the journal. Used by one thread at a time. Knows no database
and no engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from callgate.protocols import Inbox, InboxMessage

__all__ = ["JournalInbox"]

_MOST_AT_ONCE: Final = 1_024
_ANSWERS: Final = ("approve", "edit", "deny")


class JournalInbox:
    """The messages to the runs that one opened journal holds.

    Args:
        holder: The journal's writer number.
    """

    def __init__(self, inbox: Inbox, holder: int) -> None:
        self._inbox = inbox
        self._holder = holder
        self._delivered: dict[int, str] = {}
        """The runs of messages that were delivered and not yet recorded, by message id."""
        self.more = False
        """Whether there were more messages than the last call returned."""

    def take_new(self) -> list[InboxMessage]:
        """Return the messages to runs that are held, each once, and at most 1,024 per call."""
        messages = self._inbox.pending(self._holder, known=self._delivered, limit=_MOST_AT_ONCE)
        messages = _mark_replaced(messages)
        self.more = len(messages) >= _MOST_AT_ONCE
        self._delivered.update((message.id, message.run) for message in messages)
        return messages

    def deliver_again(self, runs: Iterable[str]) -> None:
        """Deliver the unrecorded messages to these runs again, because their leases were acquired again."""
        for run in runs:
            for id in [id for id, of_run in self._delivered.items() if of_run == run]:
                del self._delivered[id]

    def is_recorded(self, id: int) -> bool:
        """Return whether an event of any engine has recorded the message."""
        return self._inbox.position(id) > 0

    def mark_recorded(self, id: int, position: int) -> None:
        """Store the position of the event that records a message; inside that event's commit."""
        self._inbox.mark_recorded(id, position)
        self._delivered.pop(id, None)


def _mark_replaced(messages: Iterable[InboxMessage]) -> list[InboxMessage]:
    """Name the later message in each answer to a question that has a later one among these messages."""
    found = list(messages)
    latest = {(one.run, one.target): one.id for one in found if one.kind in _ANSWERS}
    return [
        replace(one, replaced_by=later) if one.kind in _ANSWERS and (later := latest[one.run, one.target]) != one.id else one
        for one in found
    ]
