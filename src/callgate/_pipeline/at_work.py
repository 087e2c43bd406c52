"""What whoever works on whole runs asks of an engine: to have a run, where its events stand, what others want of it.

The other side of the engine from the route: calls are its business only where a run was cut off and one of its calls is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager

from callgate._abort_signals import AbortSignal
from callgate._pipeline.endings import Endings
from callgate._pipeline.entrance import Entrance
from callgate._pipeline.ground import Ground
from callgate._pipeline.holding import Holding
from callgate._pipeline.judgment import Judges
from callgate._pipeline.life import Life
from callgate._pipeline.unfinished import Unfinished
from callgate.calls import RawCall, Scope
from callgate.errors import RecordFailed
from callgate.events import Body, Draft
from callgate.messages import Message

__all__ = ["RunsAtWork"]


class RunsAtWork:
    """The runs of one engine."""

    def __init__(self, ground: Ground, entrance: Entrance, holding: Holding, endings: Endings, life: Life, judges: Judges) -> None:
        self._judges = judges
        self._journal = ground.journal
        self._writer = ground.writer
        self._entrance = entrance
        self._holding = holding
        self._endings = endings
        self._life = life
        self._conversations = ground.conversations

    async def open(self, scope: Scope, *, new: bool = False) -> None:
        """Have a scope's run to this engine, and read what the record has of it, so that its calls can be taken up. Starts nothing.

        Args:
            scope: Whose run.
            new: The run's id was made just now, so that nobody can know it.

        Raises:
            RunHeld: Another engine works on it.
            RecordFailed: The record cannot be read.
        """
        await self._entrance.open(scope, new=new)

    def check_extra(self, scope: Scope) -> None:
        """Refuse a scope whose `extra` is not as the host has declared it: before a run begins, not at its first call.

        Raises:
            UsageError: It is not.
        """
        self._entrance.check_extra(scope)

    def at_work(self, run: str, conversation: str | None = None, *, alone: bool = False) -> AbstractContextManager[asyncio.Event]:
        """Say that somebody works on a run, for as long as the block lasts; others may have it then.

        The event it yields is set when another process wants the run stopped or killed before it begins.

        Raises:
            UsageError: Somebody does already, and two at once may not be; or the engine is closed, or belongs to another event loop.
        """
        self._life.check_open()
        return self._holding.at_work(run, conversation, alone=alone)

    def showing(self, run: str, messages: Sequence[Message]) -> AbstractContextManager[None]:
        """Show a run's conversation to the judges of its calls for as long as the block lasts."""
        return self._judges.showing(run, messages)

    def begin(self, run: str) -> None:
        """Take in what other processes want of a run that begins its turn: a stop that came before ends it now."""
        self._holding.begin(run)

    def under_way(self, conversation: str) -> bool:
        """Whether a turn of the conversation, or a call in it, is under way."""
        return self._conversations.busy(conversation) or self._life.conversing(conversation)

    def why_lost(self, run: str) -> str:
        """Why nothing more can be done in a run, where another engine has taken it over; empty where none has."""
        return self._holding.why_lost(run)

    def write(self, kind: str, run: str, body: Body, parents: tuple[int, ...] = ()) -> int:
        """Record an event that is no call's, and return its position.

        Raises:
            RecordFailed: The journal did not take it.
        """
        return self._writer.write(Draft(kind=kind, run=run, body=body, parents=parents))

    async def durable(self, position: int) -> None:
        """Wait until an event survives what the journal promises.

        Raises:
            RecordFailed: It will not.
        """
        await self._writer.durable(position)

    async def placed(self, position: int) -> int:
        """Where an event came to stand, by the position that `write` returned; 0 where it was not kept."""
        try:
            await self._writer.durable(position)
        except RecordFailed:
            return 0
        return self._journal.place(position)

    def abandon(self, unfinished: Unfinished, scope: Scope, why: str) -> None:
        """End a call that a run left open and that nobody will take up again. Runs nothing."""
        flight = self._entrance.admit(RawCall(name=unfinished.name), scope, AbortSignal(), unfinished=unfinished)
        flight.started = unfinished.claimed
        self._endings.cancelled(flight, why)
