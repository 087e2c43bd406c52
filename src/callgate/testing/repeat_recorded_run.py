"""Repeat a recorded run with the present tools and rules, as a test, and compare the two.

The model's answers and the tools' results are taken from the record. The loop, the engine, the tools' schemas and
checks, and the rules are the real ones. Each difference is a sentence that names its call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from callgate._blob_store import MemoryBlobs
from callgate._engine_limits import Limits
from callgate._journal import MemoryJournal
from callgate._tool_loading import load_tools as _load
from callgate.agent import Agent
from callgate.calls import Answered, Suspended
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.messages import Message, SystemMessage, UserMessage
from callgate.protocols import Policy
from callgate.replay import Replay
from callgate.replay.run_file import RunFile
from callgate.testing._comparison import compare_calls, compare_ends, compare_messages
from callgate.testing._recorded_settings import RecordedSettings
from callgate.testing._recorded_steps import HumanSteps, of_last_run, record_ends_open, resumptions, without_lost_passes
from callgate.testing._replay_stand_ins import RECORDED, NoWaitClock, RecordedModel, RecordedResults, accept_restart, stand_in
from callgate.tools import Tool

__all__ = ["PlayedAgain", "RecordedRun", "load_tools"]

_OVER = frozenset({"completed", "follow_up_interrupt"})
"""Statuses of a turn that cannot be resumed."""


def load_tools(*specs: str | Path) -> list[Tool]:
    """Load the tools of these sources: `builtin`, `module:attribute`, `path/to/file.py` or `path/to/file.py:attribute`.

    Raises:
        UsageError: A source cannot be loaded or has no tool.
    """
    return _load([str(spec) for spec in specs], MemoryBlobs())


class PlayedAgain(Struct, frozen=True, kw_only=True):
    """The result of repeating a recorded run."""

    differences: tuple[str, ...]
    """The differences in order, one sentence each; empty if there is none."""
    replay: Replay
    """The repeated run."""


class RecordedRun:
    """A run from a file that `callgate replay RUN --export` wrote.

    Args:
        kept: The content of the file.

    Raises:
        UsageError: The run cannot be rebuilt from the file.
    """

    def __init__(self, kept: RunFile) -> None:
        self.replay = Replay.of(kept, kept.run, kept)
        if self.replay.differences:
            raise UsageError(f"This recorded run cannot be repeated: {self.replay.differences[0]} Export it again.")
        self._kept = kept

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a file.

        Raises:
            UsageError: The file does not exist, is not a recorded run, or the run cannot be rebuilt from it.
        """
        return cls(RunFile.load(path))

    def again(self, tools: Iterable[Tool], policies: Sequence[Policy] = (), **agent: Any) -> PlayedAgain:
        """Repeat the run with these tools and policies. The tools' code is never run.

        Args:
            tools: The tools as they are now. Tools that the run did not have are left out.
            policies: The policies as they are now.
            agent: Further arguments of the run's `Agent`: `output`, `compact`, `stuck`.
        """
        return asyncio.run(self.played(tools, policies, **agent))

    async def played(self, tools: Iterable[Tool], policies: Sequence[Policy] = (), **agent: Any) -> PlayedAgain:
        """Do the same as `again`, on the running event loop."""
        had = self.replay.began.tools if self.replay.began is not None else None
        stand_ins = [stand_in(tool) for tool in tools if had is None or tool.name in had]
        return await _Player(self.replay, self._kept, stand_ins, policies).play(agent)


class _Player:
    """One repetition of a recorded run."""

    def __init__(self, then: Replay, kept: RunFile, tools: list[Tool], policies: Sequence[Policy]) -> None:
        events = of_last_run(kept.find(EventQuery(run=then.run)))
        then = without_lost_passes(then, events)
        self._then = then
        self._humans, self._resumed = HumanSteps(events), resumptions(events, kept)
        self._results = RecordedResults(then, kept, lambda: self._engine.control)
        self._broken_off = False
        settings = then.began.settings if then.began is not None else None
        self._engine = Engine(
            tools,
            policies=policies,
            journal=MemoryJournal(),
            limits=Limits(dangerous_per_tick=settings.dangerous_per_tick if settings is not None else None),
            runners={RECORDED: self._results},
            repair=any(call.repairs for call in then.calls),
            restart=accept_restart,
            clock=NoWaitClock(),
            run=then.run,
        )
        self._recorded = RecordedSettings(then, self._engine.tools, (one.position for one in self._resumed))

    def _use_settings_at(self, position: int) -> None:
        """Read arguments from now on as the engine did that worked on the run after this position of the record."""
        self._engine._parts.preparation.settings = self._recorded.at(position)

    async def play(self, options: dict[str, Any]) -> PlayedAgain:
        async with self._engine:
            await (self._repeat_agent_run(options) if self._then.began is not None else self._repeat_calls())
            now = Replay.of(self._engine.journal, self._then.run, self._engine.blobs)
        return PlayedAgain(differences=tuple(self._find_differences(now)), replay=now)

    async def _repeat_calls(self) -> None:
        """Repeat the calls of a run without an agent, one after the other."""
        for call in self._then.calls:
            if call.parent:
                continue
            await self._humans.give_answers(self._engine, call.position)
            self._use_settings_at(call.position)
            outcome = await self._engine.call(call.raw, call.scope)
            self._engine.control.end_turn(call.scope.conversation)
            if isinstance(outcome, Suspended):
                self._humans.note_id(call.approval, outcome.approval_id)
            elif isinstance(outcome, Answered):
                self._humans.note_id(call.uid, outcome.result.uid)

    async def _repeat_agent_run(self, options: dict[str, Any]) -> None:
        began = self._then.began
        assert began is not None
        model = RecordedModel(
            self._then.passes, began.model, self._break_off, self._use_settings_at, ends_open=record_ends_open(self._then)
        )
        given: dict[str, Any] = {"settings": began.settings, "exit_tools": began.exits} | options
        async with AsyncExitStack() as agents:
            agent = await agents.enter_async_context(Agent(model, self._engine, **given))
            scope = replace(began.scope, conversation="")
            if began.exposed is not None:
                scope = replace(scope, deliberate=True, allowed_tools=began.exposed.allowed)
            before = self._conversation_before()
            conversation = "" if began.scope.conversation == self._then.run else began.scope.conversation
            result = await agent.run(began.task or UserMessage(""), conversation=conversation, history=before, scope=scope)
            for one in self._resumed:
                if result.turn_status in _OVER:
                    return
                await self._humans.give_answers(self._engine, one.position)
                self._use_settings_at(one.position)
                if "settings" not in options and one.settings != given["settings"]:
                    given["settings"] = one.settings
                    agent = await agents.enter_async_context(Agent(model, self._engine, **given))
                result = await agent.resume(result if result.pending is not None else result.run)

    def _conversation_before(self) -> list[Message]:
        """Return the conversation before the run."""
        if not self._then.passes:
            raise UsageError("This recorded run has no answer of a model, so there is nothing to repeat.")
        shown: list[Message] = [message for message in self._then.passes[0].messages if not isinstance(message, SystemMessage)]
        return shown[:-1] if self._then.began is not None and self._then.began.task is not None else shown

    def _break_off(self, reason: str) -> None:
        self._broken_off = True
        self._engine.control.kill(self._conversation_id(), reason)

    def _conversation_id(self) -> str:
        assert self._then.began is not None
        return self._then.began.scope.conversation or self._then.run

    # Comparison

    def _find_differences(self, now: Replay) -> Iterable[str]:
        ends_open = record_ends_open(self._then)
        yield from compare_calls(self._then, now, ends_open=ends_open)
        for uid in self._results.missing if not ends_open else ():
            yield f"Call {uid} has no recorded result: it ran with other arguments, or did not run."
        if self._broken_off:
            return
        yield from compare_messages(self._then, now)
        yield from compare_ends(self._then, now)
