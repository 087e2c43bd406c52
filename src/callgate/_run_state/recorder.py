"""Write the events of one engine to its journal, and read them without blocking the event loop.

Used along the whole route. Redacts events before they reach the journal. Decides nothing. An event that cannot be written prevents its call
from running. `event_bodies` defines the contents of events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TypeVar

from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._deadlines import Deadlines
from callgate._run_in_thread import in_thread
from callgate._run_state.event_bodies import MOST_CHARS, Reason, Started, clean
from callgate._run_state.late_answers import late_answer_of
from callgate._runners.output_limits import shown_tail
from callgate._secret_redaction import SECRET_CHARS, RedactedLog, Redactor, cut_middle, redacted_text
from callgate.errors import CallgateError, LeaseLost, RecordFailed
from callgate.events import Body, Bus, Draft, encoded
from callgate.protocols import Execution, Journal, NamesWriters, QueuedJournal

__all__ = ["Recorder", "off_loop", "too_late"]

T = TypeVar("T")
_ERROR_CHARS = 4_000
_MOST_STARTED = 4_096
_TOLD = "The record of calls could not be written."
_argument_log = logging.getLogger("callgate.arguments")
_argument_log.addHandler(logging.NullHandler())  # so that Python does not print the warnings where logging is not set up


class Recorder:
    """Writes the events of one engine: redacts, appends, and publishes on the bus.

    Args:
        deadlines: Those of the engine.
    """

    __slots__ = ("_deadlines", "_queue", "_started", "argument_log", "bus", "identity", "journal", "log", "redactor")

    def __init__(self, journal: Journal, bus: Bus, redactor: Redactor | None, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._started: dict[str, str] = {}
        """The tools of the calls that were started last, by the uid of the call, for the log."""
        self.journal = journal
        self.identity = journal.writer if isinstance(journal, NamesWriters) else ""
        self._queue = journal if isinstance(journal, QueuedJournal) else None
        self.bus = bus
        self.redactor = redactor
        self.log = RedactedLog(redactor)
        self.argument_log = RedactedLog(redactor, _argument_log)
        """Logs repairs of arguments. A host that has not configured logging does not see them; they are recorded, and
        reported to the model.
        """

    def write(self, draft: Draft) -> int:
        """Append one event and return its position.

        Raises:
            RecordFailed: The journal could not write the event, or secrets could not be removed from it.
        """
        if self.redactor is not None:
            draft = replace(draft, body=_redact(draft.body, self.redactor))
        try:
            position = self.journal.append(draft)
        except LeaseLost as error:
            raise RecordFailed(str(error), code=error.code) from error
        except Exception as error:
            raise RecordFailed(
                f"The record could not be written ({_cause(error)}). Nothing is run until it can be; tell the operator.", told=_TOLD
            ) from error
        if isinstance(draft.body, Started):
            self._started[draft.call or ""] = draft.body.tool
            if len(self._started) > _MOST_STARTED:
                del self._started[next(iter(self._started))]
        if self.bus.busy:
            for event in self.journal.read(run=draft.run, newest_first=True, limit=1):
                self.bus.publish(draft.kind, event)
        return position

    @property
    def crowded(self) -> bool:
        """Whether the queue of events to be written is so full that a new call has to wait."""
        return self._queue is not None and self._queue.crowded

    async def wait_for_capacity(self) -> None:
        """Wait until the queue of events to be written is no longer too full for a new call."""
        if self._queue is not None:
            with suppress(Exception):  # the next write fails in the same way and reports it
                await self._queue.wait_for_capacity()

    def redacted(self, text: str) -> str:
        """Return the text without secrets."""
        return redacted_text(text, self.redactor)

    def cut(self, text: object, chars: int = MOST_CHARS) -> str:
        """Return the first characters of a text as valid UTF-8. It is redacted before it is cut."""
        return clean(text, self.redactor, chars)

    def limit_texts(self, execution: Execution) -> Execution:
        """Return an attempt with its texts cut to the engine's limits; runners limit them only coarsely."""
        error, partial = cut_middle(execution.error, _ERROR_CHARS, self.redactor), execution.partial
        if len(partial) > SECRET_CHARS:
            partial = shown_tail(partial, self.redactor)
        return replace(execution, error=error, partial=partial)

    def late(self, uid: str, execution: Execution) -> None:
        """Record a result that arrived after its call had ended. It is never used. Errors are logged, because no caller could catch
        them."""
        tool = self._started.get(uid)
        self.log.warning("A late answer of %s was discarded", f"{tool} (call {uid})" if tool else f"call {uid}")
        said = "the call had ended before its tool answered"
        body = Reason(reason=said, status=execution.status, details=late_answer_of(execution, self.redactor))
        try:
            self.write(Draft(kind="call.late", run=uid.rsplit("/", 2)[0], body=body, call=uid))
        except RecordFailed as error:
            self.log.warning("The late answer of %s was not recorded: %s", uid, error)

    async def durable(self, position: int, within_s: float | None = None) -> None:
        """Wait until the event is as durable as the journal guarantees.

        Args:
            within_s: The maximum time to wait in seconds; None: no limit.

        Raises:
            RecordFailed: The event could not be made durable, or not in time.
        """
        limit = self._deadlines.limit(inf if within_s is None else max(within_s, 0.0))
        try:
            with limit:
                await self.journal.durable(position)
        except LeaseLost as error:
            raise RecordFailed(str(error), code=error.code) from error
        except Exception as error:
            if limit.expired:
                raise too_late() from error
            raise RecordFailed(
                f"The record could not be made durable ({_cause(error)}). Nothing is run until then; tell the operator.", told=_TOLD
            ) from error


def _cause(error: Exception) -> str:
    """Return the text of an error. The type is added unless it is a journal's own error, which says what to do."""
    return str(error).rstrip(".") if isinstance(error, CallgateError) else f"{type(error).__name__}: {error}"


def too_late() -> RecordFailed:
    return RecordFailed(
        "The record could not be written within the call's time: another process has it locked, or its disk or server is slow. It is"
        " written as soon as it can be; tell the operator."
    )


async def off_loop(journal: Journal, read: Callable[[], T]) -> T:
    """Return the result of reading a journal. Read in a thread if the journal may wait for a server, which would block the event loop."""
    return await in_thread(read) if journal.remote else read()


def _redact(body: Body, redactor: Redactor) -> bytes:
    """Return the body without secrets. A body that was changed is marked, so that it is not mistaken for the original.

    Raises:
        RecordFailed: The redactor failed. The error does not contain the redactor's message, which may contain a secret.
    """
    given = encoded(body)
    try:
        kept = redactor.redact(given)
    except BaseException as error:
        if not is_own_failure(error):
            raise
        raise RecordFailed(
            f"The record could not be redacted ({type(error).__name__}). Nothing is run until it can be; tell the operator."
        ) from error
    whole = kept == given or not (kept.startswith(b"{") and kept.endswith(b"}") and len(kept) > 2)
    return kept if whole else kept[:-1] + b',"redacted":true}'
