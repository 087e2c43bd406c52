"""A state machine of call histories over one journal: results, effects and recorded events must agree.

The ledger that the tools write decides what happened, not the journal under test. `docs/explanation/guarantees.md` lists the guarantees.
Process deaths, files and tools are in `simulated_world`, calls in `history_calls`; this module has the steps and the invariants.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callgate import Answered, ToolResult
from callgate.calls import Aborted, Outcome, Suspended, Text
from callgate.errors import UsageError
from callgate.events import TERMINAL
from callgate.recorded_calls import find_tool_calls
from tests.canonical_json import canonical
from tests.recovery.history_calls import CALLS, HANDLES, Asked, one_message
from tests.recovery.simulated_world import FATES, TOOLS, Death, Effect, Fate, World
from tests.waiting import DEADLINE_S, let_pass

__all__ = ["CallsMachine"]

ENDS = ("kill", "stop and kill", "cancel", "time", "close", "death")
"""The ways to end a call that hangs."""
NEVER_RAN = frozenset({"denied", "not_started", "idempotency_conflict", "invalid_parameters"})
FATE = st.sampled_from(FATES)
SHARE = st.sampled_from([0.0, 0.3, 0.7, 1.0])


def _what_is_told(result: ToolResult) -> bytes:
    """Return what the model reads of a result, without the note that nothing was run for the second of two equal calls of a message."""
    content = [part for part in result.content if not (isinstance(part, Text) and part.text.startswith("Note: "))]
    return canonical((content, result.structured, result.status, result.error, result.code))


class CallsMachine(RuleBasedStateMachine):
    """Makes calls, with deaths, restarts, stops, repeats and answers between them."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.mkdtemp(prefix="cg-calls-")
        self._loop = asyncio.Runner()
        self.world = self._do(self._world())
        self.shown: dict[str, bytes] = {}
        """The returned result of each call, as bytes."""
        self.answers: dict[tuple[str, ...], tuple[Asked, ToolResult]] = {}
        """The first result of each call whose repeats are recognised."""
        self.hidden: dict[tuple[str, str, str], str] = {}
        """Effects whose outcome was never returned: the uid of the call, by its run, tool and argument."""
        self.used: set[tuple[str, ...]] = set()
        """The identities of earlier calls."""
        self.doubtful: set[tuple[str, str, str]] = set()
        """Effects whose outcome the engine may not know."""
        self.unknown: dict[str, tuple[str, str, str]] = {}
        """Calls with an unknown outcome."""
        self.open: set[str] = set()
        """Calls that a death has interrupted."""
        self.put: set[str] = set()
        """Calls that were suspended for an approval."""
        self.questions: dict[str, int] = {}
        """Open approvals and their expiry."""

    async def _world(self) -> World:
        return World(Path(self._folder))

    def _do(self, coroutine: Any) -> Any:
        return self._loop.run(coroutine)

    def teardown(self) -> None:
        self._do(self.world.close())
        self._loop.close()
        shutil.rmtree(self._folder)

    # Steps

    @rule(asked=CALLS, fate=FATE, end=st.sampled_from(ENDS), share=SHARE)
    def one_call(self, asked: Asked, fate: Fate, end: str, share: float) -> None:
        self._hand_in([asked], [fate], end, share)

    @rule(asked=CALLS)
    def an_undisturbed_call(self, asked: Asked) -> None:
        self._hand_in([asked], ["ok"], "kill", 0.0)

    @rule(asked=CALLS, times=st.integers(2, 3), fate=FATE, end=st.sampled_from(ENDS), share=SHARE)
    def the_same_call_several_times_at_once(self, asked: Asked, times: int, fate: Fate, end: str, share: float) -> None:
        self._hand_in([asked] * times, [fate], end, share, together=True)

    @rule(several=st.lists(CALLS, min_size=2, max_size=4), fates=st.lists(FATE, max_size=4), end=st.sampled_from(ENDS), share=SHARE)
    def a_message(self, several: list[Asked], fates: list[Fate], end: str, share: float) -> None:
        self._hand_in(one_message(several), fates, end, share)

    @rule(several=st.lists(CALLS, min_size=1, max_size=3), left=st.integers(1, 14), share=SHARE)
    def a_death_after_an_event(self, several: list[Asked], left: int, share: float) -> None:
        self.world.death = Death(left)
        self._hand_in(one_message(several), [], "death", share)
        self.world.death = Death()

    @rule(asked=CALLS)
    def a_call_during_a_stop(self, asked: Asked) -> None:
        done = len(self.world.effects)
        self.world.engine.control.stop(asked.run)
        outcome = self._do(self.world.engine.call(asked.raw(), asked.scope()))
        self.world.engine.control.end_turn(asked.run)
        assert isinstance(outcome, Aborted)
        assert len(self.world.effects) == done

    @precondition(lambda self: self.hidden)
    @rule(which=st.integers(0, 99), handle=st.sampled_from(HANDLES))
    def an_effect_without_a_result_is_sent_again(self, which: int, handle: str) -> None:
        run, name, what = sorted(self.hidden)[which % len(self.hidden)]
        self._hand_in([Asked(tool=name, what=what, handle=handle, run=run)], [], "kill", 0.0)

    @rule(share=SHARE)
    def a_death_while_nothing_runs(self, share: float) -> None:
        self._bury(share, [])

    @rule()
    def a_restart(self) -> None:
        self._do(self._restart())

    @rule(asked=CALLS)
    def a_call_to_another_engine_on_the_same_record(self, asked: Asked) -> None:
        """A run has one runner at a time: another engine takes it over when it is idle, or runs nothing."""
        self._remember_state()
        self.world.fates.clear()
        entered = len(self.world.entered)
        outcome = self._do(self.world.from_beside(asked.raw(), asked.scope()))
        if isinstance(outcome, Answered) and outcome.result.code == "run_held":
            assert len(self.world.entered) == entered
        else:
            self._judge_step([asked], [outcome], quiet=True)

    @precondition(lambda self: self.questions)
    @rule(which=st.integers(0, 99), allow=st.booleans())
    def an_answer(self, which: int, allow: bool) -> None:
        question = sorted(self.questions)[which % len(self.questions)]
        over = self.questions.pop(question) <= self.world.clock.now_ns
        if over:
            with pytest.raises(UsageError, match="open"):
                self._do(self.world.engine.answer(question, allow=allow))
        else:
            self._do(self.world.engine.answer(question, allow=allow))

    @precondition(lambda self: self.questions)
    @rule()
    def approvals_expire(self) -> None:
        self.world.clock.now_ns = max(self.questions.values())
        for question in self.questions:
            with pytest.raises(UsageError, match="open"):
                self._do(self.world.engine.answer(question, allow=True))
        self.questions.clear()

    @rule(hours=st.integers(-48, 48))
    def the_wall_clock_jumps(self, hours: int) -> None:
        self.world.clock.now_ns += hours * 3600 * 10**9

    @precondition(lambda self: self.unknown)
    @rule(which=st.integers(0, 99))
    def an_unknown_call_is_settled(self, which: int) -> None:
        uid = sorted(self.unknown)[which % len(self.unknown)]
        fact = self.unknown.pop(uid)
        meant = self._call_that_ran(uid)
        try:
            self._do(self.world.engine.settle(uid, happened=bool(self._done_by(meant))))
        except UsageError:
            return
        if self.hidden.get(fact) == meant:
            del self.hidden[fact]

    # Invariants

    @invariant()
    def the_journal_verifies(self) -> None:
        assert self.world.journal.verify() is None

    @invariant()
    def every_call_has_one_end(self) -> None:
        begun: Counter[str] = Counter()
        ends: Counter[str] = Counter()
        for event in self.world.events():
            begun[event.call] += event.kind == "call.received"
            ends[event.call] += event.kind in TERMINAL
        calls = {uid for uid, times in begun.items() if times}
        assert {begun[uid] for uid in calls} <= {1}
        assert {uid: ends[uid] for uid in calls if ends[uid] != 1} == dict.fromkeys(self.open & calls, 0)

    @invariant()
    def returned_results_are_recorded(self) -> None:
        suspended = {event.call for event in self.world.events() if event.kind == "call.suspended"}
        assert self.put <= suspended
        kept = {uid: canonical(result) for uid, result in self._results().items()}
        assert {uid: kept.get(uid) for uid in self.shown} == self.shown

    @invariant()
    def no_effect_is_repeated(self) -> None:
        once = Counter(effect.key for effect in self.world.effects if TOOLS[effect.tool] == "once")
        assert not [key for key, times in once.items() if times > 1]
        keys: dict[str, set[str]] = {}
        for effect in self.world.effects:
            if TOOLS[effect.tool] != "none":
                keys.setdefault(effect.uid, set()).add(effect.key)
        assert not [uid for uid, several in keys.items() if len(several) > 1]

    # Execution of a step

    def _hand_in(self, several: Sequence[Asked], fates: Sequence[Fate], end: str, share: float, *, together: bool = False) -> None:
        world = self.world
        self._remember_state()
        world.fates.clear()
        world.fates.extend(fates)
        world.hung.clear()
        outcomes = self._do(self._under_way(several, end, together))
        self._clear_up(several)
        if not world.alive:
            self._bury(share, several)
            self.used |= {asked.identity for asked in several}
            return
        if world.closed:
            self._do(self._restart())
        self._judge_step(several, outcomes or [None] * len(several), quiet=set(fates) <= {"ok"})

    def _remember_state(self) -> None:
        self._before = set(self.hidden), set(self.doubtful), len(self.world.effects), set(self.used)

    def _judge_step(self, several: Sequence[Asked], outcomes: Sequence[Outcome | None], *, quiet: bool) -> None:
        done = self.world.effects[self._before[2] :]
        for asked, outcome in zip(several, outcomes, strict=True):
            self._judge(asked, outcome, quiet=quiet)
            self.used.add(asked.identity)
        self._nothing_hidden_was_repeated(done)
        self._remember_what_nobody_knows(done)

    async def _under_way(self, several: Sequence[Asked], end: str, together: bool) -> list[Outcome] | None:
        """Return the outcomes, or None if the caller was cancelled or the engine died."""
        engine, scope = self.world.engine, several[0].scope()

        async def at_once() -> list[Outcome]:
            return list(await asyncio.gather(*(engine.call(asked.raw(), asked.scope()) for asked in several)))

        task: asyncio.Future[list[Outcome]] = asyncio.ensure_future(
            at_once() if together else engine.call_many([asked.raw() for asked in several], scope)
        )
        waiting = asyncio.ensure_future(self.world.hung.wait())
        await asyncio.wait({task, waiting}, return_when="FIRST_COMPLETED")
        waiting.cancel()
        if not task.done() and self.world.alive:
            await self._end(end, task, several[0].run)
        await self.world.ended([task])
        outcomes: list[Outcome] | None = None if task.cancelled() or not self.world.alive else task.result()
        return outcomes

    async def _end(self, end: str, task: asyncio.Future[Any], run: str) -> None:
        match end:
            case "kill":
                self.world.engine.control.kill(run)
            case "stop and kill":
                self.world.engine.control.stop(run)
                self.world.engine.control.kill(run)
            case "cancel":
                task.cancel()
            case "time":
                for _ in range(8):  # several tools may hang one after another
                    let_pass(DEADLINE_S + 1)
                    await asyncio.wait({task}, timeout=0.02)
                    if task.done():
                        return
            case "close":
                await self.world.close()
            case "death":
                self.world.die()

    def _clear_up(self, several: Sequence[Asked]) -> None:
        self.world.engine.control.end_turn(several[0].run)

    async def _restart(self) -> None:
        await self.world.close()
        self.world.open()

    def _bury(self, share: float, several: Sequence[Asked]) -> None:
        done = self.world.effects[self._before[2] :] if several else []
        self._do(self.world.bury(share))
        self._do(self._reopened())
        ended = {event.call for event in self.world.events() if event.kind in TERMINAL}
        self.open |= {event.call for event in self.world.events() if event.call not in ended and event.call}
        self._remember_what_nobody_knows(done)
        self.doubtful |= {asked.fact for asked in several}

    async def _reopened(self) -> None:
        self.world.open()

    # Checks of results

    def _judge(self, asked: Asked, outcome: Outcome | None, *, quiet: bool) -> None:
        match outcome:
            case None:
                self.doubtful.add(asked.fact)
            case Answered(result=result):
                self._judge_result(asked, result, quiet=quiet)
            case Suspended(approval_id=question, uid=uid, expires_at=expires_at):
                assert asked.what == "asked"
                assert not self._done_by(uid)
                self.put.add(uid)
                self.questions[question] = expires_at
            case Aborted():
                self.doubtful.add(asked.fact)

    def _judge_result(self, asked: Asked, result: ToolResult, *, quiet: bool) -> None:
        effects = self._done_by(result.uid)
        again = result.metadata.replayed or result.metadata.joined
        if result.failure_class in NEVER_RAN or again:
            assert not effects, (asked, result)
        if asked.what == "denied":
            assert not self._done_as(asked)
        if result.status == "unknown":
            assert "try again" not in result.text
            # the second text applies when time passes while the result is written to disk, so that one clock step ends two calls
            assert "heck" in result.text or "Do not repeat the call" in result.text, result.text
            refused = isinstance(result.structured, dict) and result.structured.get("earlier_call")
            self.unknown.setdefault(str(refused or result.uid), asked.fact)  # settling a refused call settles the earlier one
            self.doubtful.add(asked.fact)
        if result.status == "ok" and TOOLS[asked.tool] != "none":
            assert self._done_as(asked), (asked, result)
            assert len(effects) <= 1 or TOOLS[asked.tool] == "idempotent"
        if result.status == "error" and effects:
            assert result.failure_class == "exception", result
        self._judge_known(asked, result, again=again)
        if quiet and not again and asked.what in ("ann", "bob") and asked.fact not in self._before[1]:
            assert result.status == "ok" or asked.identity in self.used, (asked, result)
        if result.code != "record_failed":  # the text of this result says that it is recorded later
            self.shown[result.uid] = canonical(result)

    def _judge_known(self, asked: Asked, result: ToolResult, *, again: bool) -> None:
        if not asked.identity:
            return
        known = self.answers.get(asked.identity)
        if known is None:
            if result.failure_class not in NEVER_RAN and result.status != "unknown" and result.code != "not_done":
                self.answers[asked.identity] = (asked, result)  # a call that certainly had no effect may be sent again under its key
            return
        first, told = known
        if first.what != asked.what:
            assert result.failure_class in ("idempotency_conflict", "not_started"), (first, asked, result)
        elif result.status == "unknown" and asked.identity not in self._before[3]:
            return  # a call that joins a hanging call may reach its own deadline and get an unknown outcome
        elif result.failure_class not in NEVER_RAN:
            assert again, (first, asked, result)
            assert _what_is_told(told) == _what_is_told(result)

    def _call_that_ran(self, uid: str) -> str:
        """Return the call whose outcome this call has: the one that it joined or repeats, or itself."""
        for event in self.world.events():
            if event.kind == "call.replayed" and event.call == uid:
                return str(msgspec.json.decode(event.body).get("details", {}).get("uid") or uid)
        return uid

    def _done_by(self, uid: str) -> list[Effect]:
        return [effect for effect in self.world.effects if effect.uid == uid]

    def _done_as(self, asked: Asked) -> list[Effect]:
        return [effect for effect in self.world.effects if (effect.run, effect.tool, effect.what) == asked.fact]

    def _nothing_hidden_was_repeated(self, done: Sequence[Effect]) -> None:
        """Check that no other call repeats a possible effect until its outcome is settled or a human allows it. `book` has a `verify`."""
        for effect in done:
            fact = (effect.run, effect.tool, effect.what)
            assert fact not in self._before[0] or effect.what == "asked" or effect.tool != "pay", effect

    def _remember_what_nobody_knows(self, done: Sequence[Effect]) -> None:
        """Remember the effects of `once` calls whose outcome is not recorded."""
        results = self._results()
        for effect in done:
            result = results.get(effect.uid)
            if TOOLS[effect.tool] == "once" and (result is None or result.status == "unknown"):
                fact = effect.run, effect.tool, effect.what
                self.hidden.setdefault(fact, effect.uid)
                self.unknown.setdefault(effect.uid, fact)

    def _results(self) -> dict[str, ToolResult]:
        """Return the recorded result of each call that has one."""
        return {entry.uid: entry.result for entry in find_tool_calls(self.world.journal) if entry.result is not None}
