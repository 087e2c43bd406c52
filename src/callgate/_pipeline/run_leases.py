"""Keep the leases of the runs that one engine works on, and end a run whose lease another engine has taken.

`run_states` has the state of the runs, `open_runs` acquires and offers leases, and `inbox_delivery` carries out messages. Knows no route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from callgate._abort_signals import Control
from callgate._pipeline.inbox_delivery import InboxDelivery
from callgate._pipeline.run_states import RunStates, Work
from callgate._pipeline.running_calls import RunningCalls
from callgate._run_state.recorder import Recorder
from callgate.errors import UsageError
from callgate.protocols import InboxMessage

__all__ = ["RunLeases"]

_MOST_LOST = 1_000


class RunLeases:
    """Keeps the leases of the runs that this engine works on, and ends a run whose lease another engine has taken.

    A run that is lost is ended at once: its calls and its conversation are killed. Nothing further of it can be recorded, because the
    journal refuses writes without the lease.

    Args:
        work: The engine's current work, by run. Modified.
        running: The running calls.
        run_states: The states of runs.
        inbox: Delivers messages of other processes.
    """

    def __init__(
        self,
        recorder: Recorder,
        control: Control,
        work: dict[str, Work],
        running: RunningCalls,
        run_states: RunStates,
        inbox: InboxDelivery,
    ) -> None:
        self._journal = recorder.journal
        self._log = recorder.log
        self._control = control
        self._running = running
        self._run_states = run_states
        self._work = work
        self._inbox = inbox
        self._lost: dict[str, str] = {}

    @contextmanager
    def at_work(self, run: str, conversation: str | None, *, alone: bool) -> Iterator[asyncio.Event]:
        """Keep the run's lease until the block ends. Another engine may acquire it after that.

        Args:
            alone: Whether no other code of this engine may work on the run at the same time.

        Yields:
            An event that is set when another process requests that the run is stopped or killed before it begins.

        Raises:
            UsageError: `alone` is set and the run is already being worked on.
        """
        if alone and run in self._work:
            raise UsageError(f"Run '{run[:80]}' is being worked on already. Wait until that has ended, or kill its conversation.")
        self._lost.pop(run, None)
        work = self._work.setdefault(run, Work())
        work.count += 1
        if conversation is not None:
            work.conversations.add(conversation)
        try:
            yield work.end_wanted
        finally:
            work.count -= 1
            if not work.count:
                del self._work[run]
                if not self._run_states.is_busy(run):
                    self._inbox.forget(run)
                    self._run_states.let_go(run)
                    self._journal.release_lease(run)

    def works_in_others(self, run: str, conversation: str) -> bool:
        """Return whether this engine works on the run in other conversations, too."""
        work = self._work.get(run)
        return work is not None and work.conversations != {conversation}

    def why_lost(self, run: str) -> str:
        """Return why the run's lease was lost; empty if it was not."""
        return self._lost.get(run, "")

    def lost(self, run: str, why: str) -> None:
        """End the calls and the conversation of a run whose lease another engine has taken."""
        self._log.error("%s", why)
        self._lost[run] = why
        while len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]
        self._run_states.forget(run)
        self._inbox.forget(run)
        for state in self._running.by_uid.values():
            if state.scope.run == run:
                state.kill.fire(why)
        work = self._work.get(run)
        for conversation in work.conversations if work is not None else ():
            self._control.kill(conversation, why)

    def message_arrived(self, message: InboxMessage) -> None:
        self._inbox.message_arrived(message)

    def begin(self, run: str) -> None:
        """Deliver the waiting messages of an agent's run, which now has its turn of the conversation."""
        if run in self._work:
            self._work[run].begun = True
        self.deliver(run)

    def deliver(self, run: str) -> None:
        """Carry out the waiting messages of a run, as far as that is possible now."""
        self._inbox.deliver(run)
