"""A state machine of agent runs over one journal: runs are killed, interrupted, resumed, suspended, answered and followed up.

The model is a function of the conversation, so a resumed run meets the same model. Each call has a unique argument, so the ledger shows for
each whether it took effect, how often, and under how many keys. `docs/explanation/guarantees.md` lists the guarantees. Deaths, files and
tools are in `simulated_world`, the model in `scripted_model`; this module has the steps and the invariants.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callgate import Agent, Scope
from callgate.agent import RunResult
from callgate.agent.recorded_run import load_run
from callgate.errors import UsageError
from callgate.events import TERMINAL
from callgate.recorded_calls import find_tool_calls
from tests.canonical_json import canonical
from tests.recovery.scripted_model import SCRIPT, Player, Script, assert_valid, facts_of, names
from tests.recovery.simulated_world import FATES, TOOLS, Death, Effect, Fate, World

__all__ = ["RunsMachine"]

ENDS = ("kill", "stop", "cancel", "close", "death")
"""The ways to end a run whose tool hangs; a stop is followed by a kill."""
TALK = "talk"
"""A conversation that several runs share."""
FATE = st.lists(st.sampled_from(FATES), max_size=4)
SHARE = st.sampled_from([0.0, 0.3, 0.7, 1.0])


class RunsMachine(RuleBasedStateMachine):
    """Makes runs, with deaths, restarts, stops, resumes and answers between them."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.mkdtemp(prefix="cg-runs-")
        self._runner = asyncio.Runner()
        self.scripts: list[Script] = []
        self.world: World = self._do(self._begun())
        self.over: set[str] = set()
        """Runs that were reported as completed."""
        self.talks: set[int] = set()
        """Runs of the shared conversation. None is resumed, because the model follows the latest task there."""
        self.asked: dict[str, int] = {}
        self.shown: dict[str, bytes] = {}
        self.unknown: dict[str, str] = {}
        """Effects that were reported as unknown: the uid of the call, by its argument."""

    async def _begun(self) -> World:
        world = World(Path(self._folder))
        self.agent = Agent(Player(self.scripts), world.engine)
        return world

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(coroutine)

    def teardown(self) -> None:
        try:
            for task in range(len(self.scripts)):
                self._resumed(task, [], "kill", 0.0)
            self.no_effect_is_repeated()
        finally:
            self._do(self._closed())
            self._runner.close()
            shutil.rmtree(self._folder)

    async def _closed(self) -> None:
        await self.agent.close()
        await self.world.close()

    # Steps

    @rule(script=SCRIPT, fates=FATE, end=st.sampled_from(ENDS), share=SHARE, talk=st.booleans())
    def a_run(self, script: Script, fates: list[Fate], end: str, share: float, talk: bool) -> None:
        self._in_life(self._task(script, TALK if talk else ""), fates, end, share)

    @rule(script=SCRIPT, left=st.integers(1, 30), share=SHARE)
    def a_run_that_dies_after_an_event(self, script: Script, left: int, share: float) -> None:
        self.world.death = Death(left)
        self._in_life(self._task(script, ""), [], "death", share)

    @rule(script=SCRIPT, other=SCRIPT, end=st.sampled_from(ENDS), share=SHARE)
    def a_follow_up_while_a_tool_hangs(self, script: Script, other: Script, end: str, share: float) -> None:
        self._in_life(self._task(script, TALK), ["hangs after"], end, share, then=lambda: self._task(other, TALK, follows=True))

    @precondition(lambda self: self.scripts)
    @rule(which=st.integers(0, 99), fates=FATE, end=st.sampled_from(ENDS), share=SHARE)
    def a_run_is_resumed(self, which: int, fates: list[Fate], end: str, share: float) -> None:
        self._resumed(which % len(self.scripts), fates, end, share)

    @precondition(lambda self: self.scripts)
    @rule(which=st.integers(0, 99), left=st.integers(1, 20), share=SHARE)
    def a_run_is_resumed_and_dies_after_an_event(self, which: int, left: int, share: float) -> None:
        self.world.death = Death(left)
        self._resumed(which % len(self.scripts), [], "death", share)

    @rule(share=SHARE)
    def a_death_while_nothing_runs(self, share: float) -> None:
        self._bury(share)

    @rule()
    def a_restart(self) -> None:
        self._do(self._closed())
        self._reopen()

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 99), allow=st.booleans())
    def an_answer(self, which: int, allow: bool) -> None:
        question = sorted(self.asked)[which % len(self.asked)]
        over = self.asked.pop(question) <= self.world.clock.now_ns
        if over:
            with pytest.raises(UsageError, match="open"):
                self._do(self.world.engine.answer(question, allow=allow))
        else:
            self._do(self.world.engine.answer(question, allow=allow))

    @precondition(lambda self: self.asked)
    @rule()
    def approvals_expire(self) -> None:
        self.world.clock.now_ns = max(self.asked.values())
        for question in self.asked:
            with pytest.raises(UsageError, match="open"):
                self._do(self.world.engine.answer(question, allow=True))
        self.asked.clear()

    @precondition(lambda self: self.unknown)
    @rule(which=st.integers(0, 99))
    def an_unknown_call_is_settled(self, which: int) -> None:
        what = sorted(self.unknown)[which % len(self.unknown)]
        try:
            self._do(self.world.engine.settle(self.unknown[what], happened=True))
        except UsageError:
            return
        del self.unknown[what]

    # Invariants

    @invariant()
    def the_journal_verifies(self) -> None:
        assert self.world.journal.verify() is None

    @invariant()
    def every_call_is_received_once_and_ends_at_most_once(self) -> None:
        begun = Counter(event.call for event in self.world.events() if event.kind == "call.received")
        ends = Counter(event.call for event in self.world.events() if event.kind in TERMINAL)
        assert set(begun.values()) <= {1}
        assert set(ends.values()) <= {1}
        open_runs = {uid.partition("/")[0] for uid in begun.keys() - ends.keys()}
        assert not open_runs & self.over

    @invariant()
    def returned_results_are_recorded(self) -> None:
        kept = {entry.uid: facts_of(entry.result) for entry in find_tool_calls(self.world.journal) if entry.result is not None}
        assert {uid: kept.get(uid) for uid in self.shown} == self.shown

    @invariant()
    def no_effect_is_repeated(self) -> None:
        done = Counter(effect.what for effect in self.world.effects if TOOLS[effect.tool] == "once")
        wanted: Counter[str] = Counter()
        for task, script in enumerate(self.scripts):
            wanted.update(what for message in names(task, script) for what in message)
        assert not [what for what, times in done.items() if times > wanted[what]]
        assert set(Counter((effect.key, effect.uid) for effect in self.world.effects if TOOLS[effect.tool] == "once").values()) <= {1}
        keys: dict[str, set[str]] = {}
        for effect in self.world.effects:
            keys.setdefault(effect.uid, set()).add(effect.key)
        assert not [uid for uid, several in keys.items() if len(several) > 1]

    @invariant()
    def no_denied_call_has_an_effect(self) -> None:
        assert not [effect for effect in self.world.effects if effect.what.startswith("denied")]

    # Execution of a step

    def _task(self, script: Script, conversation: str, *, follows: bool = False) -> Coroutine[Any, Any, RunResult]:
        task = len(self.scripts)
        self.scripts.append(script)
        if conversation:
            self.talks.add(task)
        scope = Scope(run=f"run-{task}")
        if follows:
            return self.agent.follow_up(f"task {task}", conversation=conversation, scope=scope)
        return self.agent.run(f"task {task}", conversation=conversation, scope=scope)

    def _resumed(self, task: int, fates: list[Fate], end: str, share: float) -> None:
        if task in self.talks:
            self.world.death = Death()
            return
        run = f"run-{task}"
        told_as_over = run in self.over
        try:
            self._in_life(self.agent.resume(run), fates, end, share)
            assert not told_as_over
        except UsageError as error:
            if "is over" in str(error):
                return
            if "on record" not in str(error):
                raise
            assert run not in self.over
            assert not [effect for effect in self.world.effects if effect.run == run]

    def _in_life(self, work: Coroutine[Any, Any, RunResult], fates: list[Fate], end: str, share: float, then: Any = None) -> None:
        world = self.world
        before, unknown = len(world.effects), set(self.unknown)
        world.fates.clear()
        world.fates.extend(fates)
        world.hung.clear()
        try:
            results = self._do(self._under_way(work, end, then))
        finally:
            world.death = Death()
        if not world.alive:
            self._bury(share)
        elif world.closed:
            self._reopen()
        for effect in world.effects[before:]:
            assert effect.what not in unknown or effect.what.startswith("asked") or effect.tool != "pay", effect
        for result in results:
            self._judge(result, world.effects)

    async def _under_way(self, work: Coroutine[Any, Any, RunResult], end: str, then: Any) -> list[RunResult]:
        tasks = [asyncio.ensure_future(work)]
        hung = asyncio.ensure_future(self.world.hung.wait())
        await asyncio.wait({*tasks, hung}, return_when="FIRST_COMPLETED")
        hung.cancel()
        if not tasks[0].done() and self.world.alive:
            if then is not None:
                tasks.append(asyncio.ensure_future(then()))
                await asyncio.sleep(0)
            await self._end(end, tasks)
        await self.world.ended(tasks)
        return [task.result() for task in tasks if not task.cancelled() and self.world.alive]

    async def _end(self, end: str, tasks: Sequence[asyncio.Future[RunResult]]) -> None:
        match end:
            case "kill" | "stop":
                for conversation in list(self.world.engine.control._turns):
                    if end == "stop":
                        self.agent.stop(conversation)
                    self.agent.kill(conversation)
            case "cancel":
                for task in tasks:
                    task.cancel()
            case "close":
                await self._closed()
            case "death":
                self.world.die()

    def _bury(self, share: float) -> None:
        self._do(self.world.bury(share))
        self._do(self.agent.close())
        self._reopen()

    def _reopen(self) -> None:
        self._do(self._open_again())

    async def _open_again(self) -> None:
        self.world.open()
        self.agent = Agent(Player(self.scripts), self.world.engine)

    # Checks of results

    def _judge(self, result: RunResult, effects: Sequence[Effect]) -> None:
        assert_valid(result.messages)
        if "is closed" in result.reason:  # its end could not be recorded, so it counts as interrupted
            return
        if result.pending is not None:
            self.asked |= {approval.approval_id: approval.expires_at for approval in result.pending.approvals}
        begun = any(event.kind == "run.began" for event in self.world.journal.read(run=result.run))
        if result.status == "completed" and begun:  # a run with another status may be resumed
            self.over.add(result.run)
        done = {effect.uid: effect for effect in effects}
        whats = {event.call: event for event in self.world.events() if event.kind == "call.received"}
        for one in result.results:
            if one.code not in ("broken_off", "record_failed"):
                self.shown[one.uid] = facts_of(one)
            if one.status == "unknown":
                assert "try again" not in one.text
                assert "heck" in one.text or "Do not repeat the call" in one.text, one.text
                if one.uid in done and TOOLS[one.name] == "once":
                    self.unknown[done[one.uid].what] = one.uid
            if one.status == "ok" and TOOLS[one.name] in ("once", "idempotent"):
                assert one.uid in done or one.name == "book" or one.metadata.replayed, (one, whats[one.uid].body)
            if one.failure_class in ("denied", "not_started"):
                assert one.uid not in done, one
        if begun and result.conversation == result.run:
            told = load_run(self.world.engine.journal, self.world.engine.blobs, result.run).history.messages
            assert canonical(told) == canonical(list(result.messages))
