"""The runs of one engine, for code that works on whole runs, such as the agent loop.

Above `admission` and `run_leases`, which it asks. Deals with single calls only to abandon one that an interrupted run left open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from callgate._abort_signals import AbortSignal
from callgate._pipeline.admission import Admission
from callgate._pipeline.ask_judges import Judges
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_lifecycle import Lifecycle
from callgate._pipeline.outcomes import Outcomes
from callgate._pipeline.run_leases import RunLeases
from callgate._pipeline.running_calls import RunningCalls
from callgate._run_state.run_recovery import UnfinishedCall
from callgate.calls import RawCall, Scope, ToolResult
from callgate.errors import RecordFailed
from callgate.events import Body, Draft
from callgate.messages import Message

__all__ = ["EngineRuns"]


class EngineRuns:
    """The runs of one engine, for code that works on whole runs, such as the agent loop.

    Deals with single calls only to abandon one that an interrupted run left open.
    """

    def __init__(
        self,
        context: EngineContext,
        admission: Admission,
        leases: RunLeases,
        outcomes: Outcomes,
        lifecycle: Lifecycle,
        running: RunningCalls,
        judges: Judges,
        start_servers: Callable[[], Awaitable[None]],
    ) -> None:
        self._judges = judges
        self._start_servers = start_servers
        self._journal = context.journal
        self._recorder = context.recorder
        self._admission = admission
        self._leases = leases
        self._outcomes = outcomes
        self._lifecycle = lifecycle
        self._running = running
        self._conversations = context.conversations

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the engine belongs to; None if it belongs to none yet."""
        return self._lifecycle.loop

    async def open(self, scope: Scope, *, new: bool = False) -> None:
        """Acquire the lease of a scope's run and load its state, with the engine's servers started. Runs no call.

        Args:
            scope: The scope that names the run.
            new: Whether the run's id has just been made, so that no other engine can know it.

        Raises:
            RunHeld: Another engine works on the run.
            RecordFailed: The record cannot be read.
            UsageError: A server that the engine needs cannot be started.
        """
        await self._start_servers()
        await self._admission.open(scope, new=new)

    def check_extra(self, scope: Scope) -> None:
        """Check before a run begins, instead of at its first call, that the scope's `extra` is as declared.

        Raises:
            UsageError: It is not as declared.
        """
        self._admission.check_extra(scope)

    def at_work(self, run: str, conversation: str | None = None, *, alone: bool = False) -> AbstractContextManager[asyncio.Event]:
        """Keep the run's lease until the block ends. Another engine may acquire it after that.

        The yielded event is set when another process requests that the run is stopped or killed before it begins.

        Args:
            alone: Whether no other code of this engine may work on the run at the same time.

        Raises:
            UsageError: `alone` is set and the run is already being worked on; or the engine is closed, or belongs to another event loop.
        """
        self._lifecycle.check_open()
        return self._leases.at_work(run, conversation, alone=alone)

    def works_in_others(self, run: str, conversation: str) -> bool:
        """Return whether this engine works on the run in other conversations, too."""
        return self._leases.works_in_others(run, conversation)

    def show_messages(self, run: str, messages: Sequence[Message]) -> AbstractContextManager[None]:
        """Show a run's conversation to the judges of its calls until the block ends."""
        return self._judges.show_messages(run, messages)

    def begin(self, run: str) -> None:
        """Deliver messages of other processes to a run that begins its turn. A stop that was sent earlier ends the run now."""
        self._leases.begin(run)

    def under_way(self, conversation: str) -> bool:
        """Return whether a turn of the conversation, or a call in it, is running."""
        return self._conversations.busy(conversation) or self._running.has_conversation(conversation)

    def why_lost(self, run: str) -> str:
        """Return why the run's lease was lost; empty if it was not."""
        return self._leases.why_lost(run)

    def write(self, kind: str, run: str, body: Body, parents: tuple[int, ...] = ()) -> int:
        """Record an event that belongs to no call, and return its position.

        Raises:
            RecordFailed: The event could not be written.
        """
        return self._recorder.write(Draft(kind=kind, run=run, body=body, parents=parents))

    async def durable(self, position: int) -> None:
        """Wait until an event is as durable as the journal guarantees.

        Raises:
            RecordFailed: The event could not be made durable.
        """
        await self._recorder.durable(position)

    async def final_position(self, position: int) -> int:
        """Return the final position of an event from the position that `write` returned; 0 if the event was not kept."""
        try:
            await self._recorder.durable(position)
        except RecordFailed:
            return 0
        return self._journal.final_position(position)

    def abandon(self, unfinished: UnfinishedCall, scope: Scope, why: str) -> None:
        """Record the end of a call that a run left open and that will not be resumed. Does not run the call."""
        state = self._admission.admit(RawCall(name=unfinished.name), scope, AbortSignal(), _no_nested_call, unfinished=unfinished)
        state.started = unfinished.claimed
        self._outcomes.end_cancelled(state, why)


async def _no_nested_call(parent: CallState, name: str, arguments: Mapping[str, object]) -> ToolResult:
    raise RuntimeError(f"{parent.uid} was abandoned and calls no other tool.")
