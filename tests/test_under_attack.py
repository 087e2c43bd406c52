"""Races, odd inputs and broken helpers that once got through: each a promise that must hold all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callgate import (
    Aborted,
    Allow,
    Ask,
    Deny,
    Engine,
    Limits,
    Modify,
    RawCall,
    Rules,
    Scope,
    SqliteJournal,
    Suspended,
    ToolContext,
    UsageError,
    Verified,
    before_call,
    tool,
)
from callgate.events import TERMINAL
from callgate.protocols import Verdict
from callgate.route import ValidatedCall
from callgate.testing import ManualClock
from tests.door import call, kinds, result_of, said
from tests.ledger import Ledger
from tests.patience import PATIENCE_S


def paying(ledger: Ledger, hang: asyncio.Event | None = None, **settings: Any) -> Any:
    @tool(**settings)
    async def pay(to: str, amount: float = 1) -> str:
        """Pay somebody."""
        ledger.write(f"{to} {amount:g}")
        if hang is not None:
            await hang.wait()
        return f"paid {to}"

    return pay


def ends(engine: Engine) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in engine.journal.read():
        if event.kind in TERMINAL:
            found[event.call] = found.get(event.call, 0) + 1
    return found


async def test_a_caller_cancelled_while_the_result_goes_to_disk_leaves_one_end(tmp_path: Path, ledger: Ledger) -> None:
    async with Engine([paying(ledger)], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        task = asyncio.create_task(engine.call(call("pay", to="ann")))

        def cancel(topic: str, item: object) -> None:
            asyncio.get_running_loop().call_soon(task.cancel)

        engine.bus.subscribe(cancel, "call.completed")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await said(engine, call("pay", to="bob"))).success
        assert set(ends(engine).values()) == {1}


async def test_a_stored_result_is_for_whom_it_was_made(ledger: Ledger) -> None:
    class OnlyAlice:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Allow() if call.scope.principal == "alice" else Deny(reason="not you")

    async with Engine([paying(ledger)], policies=[OnlyAlice()]) as engine:
        alice = await said(engine, call("pay", id="call_0", to="x"), Scope(principal="alice", conversation="a"))
        bob = await said(engine, call("pay", id="call_0", to="x"), Scope(principal="bob", conversation="b"))
    assert (alice.success, bob.failure_class, bob.metadata.replayed) == (True, "denied", False)


@pytest.mark.parametrize("result", [object(), float("nan"), "\ud800"], ids=["no JSON", "no number", "no text"])
async def test_what_verify_found_to_have_happened_is_not_run_again_whatever_it_returns(result: object, ledger: Ledger) -> None:
    def verify(arguments: dict[str, object], key: str) -> Verified:
        return Verified(happened=True, result=result)

    async with Engine([paying(ledger, asyncio.Event(), verify=verify)], timeout_s=0.05, clock=ManualClock()) as engine:
        await said(engine, call("pay", id="a", to="ann"))
        again = await said(engine, call("pay", id="b", to="ann"))
    assert again.code != "internal_error"
    assert ledger.lines() == ["ann 1"]


async def test_a_doubt_that_arises_while_a_call_waits_for_its_slot_keeps_it_from_starting(ledger: Ledger) -> None:
    async with Engine([paying(ledger, asyncio.Event(), parallel=1, timeout_s=0.05)]) as engine:
        outcomes = await asyncio.gather(*(engine.call(call("pay", id=one, to="ann")) for one in "abc"))
    assert [result_of(outcome).status for outcome in outcomes] == ["unknown"] * 3
    assert ledger.lines() == ["ann 1"]


async def test_a_fault_after_the_effect_leaves_a_doubt(ledger: Ledger) -> None:
    class Full:
        def put(self, data: bytes) -> str:
            raise OSError("no space left")

        def get(self, digest: str) -> bytes | None:
            return None

    @tool
    async def export() -> str:
        """Export much."""
        ledger.write("exported")
        return "x" * 100_000

    async with Engine([export], blobs=Full()) as engine:
        assert [(await said(engine, call("export", id=one))).status for one in "ab"] == ["unknown", "unknown"]
    assert ledger.lines() == ["exported"]


async def test_arguments_changed_in_place_never_reach_the_tool(ledger: Ledger) -> None:
    @before_call("pay", kind="transform")
    def sly(call: ValidatedCall) -> dict[str, object]:
        call.arguments["amount"] = "not even a number"
        return call.arguments

    @before_call("pay")
    def slyer(call: ValidatedCall) -> None:
        call.arguments["amount"] = 1_000_000

    class Slyest:
        async def decide(self, call: ValidatedCall) -> Verdict:
            call.arguments["amount"] = 1_000_000
            return Allow()

    cases: list[dict[str, Any]] = [{"hooks": [sly]}, {"policies": [Slyest()]}]
    for settings in cases:
        async with Engine([paying(ledger)], **settings) as engine:
            assert (await said(engine, call("pay", to="ann", amount=5))).failure_class == "denied"
    async with Engine([paying(ledger)], hooks=[slyer]) as engine:
        assert (await said(engine, call("pay", to="ann", amount=5))).success
    assert ledger.lines() == ["ann 5"]


@pytest.mark.parametrize("first_effect", ["idempotent", "none"])
async def test_calls_that_meet_only_after_a_policy_changed_one_run_one_after_the_other(first_effect: Any) -> None:
    running: set[str] = set()
    met: list[set[str]] = []

    async def visit(name: str) -> str:
        running.add(name)
        for _ in range(20):
            met.append(set(running))
            await asyncio.sleep(0)
        running.remove(name)
        return name

    @tool(effect=first_effect, reads="file:{path}", writes=None if first_effect == "none" else "file:{path}")
    async def first(path: str) -> str:
        """First."""
        return await visit("first")

    @tool(effect="idempotent", writes="file:{path}")
    async def second(path: str) -> str:
        """Second."""
        return await visit("second")

    class Rewrite:
        async def decide(self, call: ValidatedCall) -> Verdict:
            for _ in range(10 if call.name == "second" else 0):
                await asyncio.sleep(0)
            if call.arguments["path"] == "a":
                return Modify(arguments={"path": "x"}, reason="x is meant")
            return Allow()

    async with Engine([first, second], policies=[Rewrite()]) as engine:
        outcomes = await engine.call_many([call("first", path="a"), call("second", path="x")])
    assert all(result_of(outcome).success for outcome in outcomes)
    assert {"first", "second"} not in met


class OntoA:
    """A policy that moves whatever touches `b` onto `a`."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        return Modify(arguments={"place": "a"}, reason="a is meant") if call.arguments["place"] == "b" else Allow()


def keyed(trace: list[str]) -> list[Any]:
    @tool(effect="once", writes="f:{place}")
    async def write(place: str) -> str:
        """Write."""
        trace.append(f"write {place}")
        return "written"

    @tool(effect="none", reads="f:{place}")
    async def read(place: str) -> str:
        """Read."""
        trace.append(f"read {place}")
        return "read"

    return [write, read]


@pytest.mark.parametrize("end", ["seal", "discard", "cancel"])
async def test_an_early_read_moved_onto_what_an_earlier_call_will_write_waits_without_holding_anything(end: str) -> None:
    trace: list[str] = []
    async with Engine(keyed(trace), policies=[OntoA()]) as engine:
        emission = engine.emission()
        emission.add(call("write", place="a"))
        emission.add(call("read", place="b"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert trace == []
        if end == "seal":
            await asyncio.wait_for(emission.seal(), PATIENCE_S)
        elif end == "discard":
            await asyncio.wait_for(emission.discard("the stream dropped"), PATIENCE_S)
        else:
            sealing = asyncio.create_task(emission.seal())
            await asyncio.sleep(0)
            sealing.cancel()
            await asyncio.wait([sealing], timeout=PATIENCE_S)
            assert sealing.cancelled()
        assert sorted(ends(engine).values()) == [1, 1]
    allowed: dict[str, list[list[str]]] = {
        "seal": [["write a", "read a"]],
        "discard": [[]],
        "cancel": [[], ["write a"]],
    }  # a cancel may come after the write
    assert trace in allowed[end]


async def test_a_result_that_is_no_longer_held_is_read_from_the_journal(tmp_path: Path, ledger: Ledger) -> None:
    limits = Limits(remembered_calls=2)
    async with Engine([paying(ledger)], journal=SqliteJournal(tmp_path / "journal.db"), limits=limits) as engine:
        for n in range(5):
            await said(engine, call("pay", id=f"c{n}", to=str(n)))
        again = await said(engine, call("pay", id="c0", to="0"))
    assert (again.metadata.replayed, again.text) == (True, "paid 0")
    assert len(ledger.lines()) == 5


async def test_a_discarded_message_uses_no_number_twice(tmp_path: Path, ledger: Ledger) -> None:
    path, scope = tmp_path / "journal.db", Scope(run="r")
    async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
        emission = engine.emission(scope, early=False)
        emission.add(call("pay", to="ann"))
        await emission.discard("the stream dropped")
    async with Engine([paying(ledger)], journal=SqliteJournal(path)) as engine:
        assert (await said(engine, call("pay", to="bob"), scope)).success
        assert ends(engine) == {"r/0/0": 1, "r/0/1": 1}
    assert ledger.lines() == ["bob 1"]


async def test_a_message_without_calls_can_be_discarded_and_sealed() -> None:
    async with Engine() as engine:
        await engine.emission().discard("the stream broke")
        assert await engine.emission().seal() == []


async def test_a_policy_that_does_not_answer_is_a_no(ledger: Ledger) -> None:
    class Silent:
        async def decide(self, call: ValidatedCall) -> Verdict:
            await asyncio.Event().wait()
            raise AssertionError

    async with Engine([paying(ledger)], policies=[Silent()], limits=Limits(policy_timeout_s=0.05)) as engine:
        assert (await said(engine, call("pay", to="ann"))).code == "policy_failed"
    assert ledger.lines() == []


async def test_a_cancel_that_a_policy_or_hook_brings_with_it_is_its_own_failure(ledger: Ledger) -> None:
    class Cancelled:
        async def decide(self, call: ValidatedCall) -> Verdict:
            future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
            future.cancel()
            return await future

    @before_call()
    async def leaving(call: ValidatedCall) -> None:
        raise SystemExit(1)

    async with Engine([paying(ledger)], policies=[Cancelled()], hooks=[leaving]) as engine:
        assert (await said(engine, call("pay", to="ann"))).code == "policy_failed"
        assert "hook.failed" in kinds(engine)


async def test_a_kill_ends_the_wait_for_a_slot(ledger: Ledger) -> None:
    release = asyncio.Event()
    async with Engine([paying(ledger, release)], limits=Limits(parallel_calls=1)) as engine:
        holding = asyncio.create_task(engine.call(call("pay", to="ann"), Scope(conversation="one")))
        while not ledger.lines():
            await asyncio.sleep(0)
        waiting = asyncio.create_task(engine.call(call("pay", to="bob"), Scope(conversation="two")))
        for _ in range(5):
            await asyncio.sleep(0)
        engine.control.kill("two")
        assert isinstance(await asyncio.wait_for(waiting, PATIENCE_S), Aborted)
        release.set()
        assert result_of(await holding).success
        assert (await said(engine, call("pay", to="eve"))).success
    assert ledger.lines() == ["ann 1", "eve 1"]


async def test_children_of_one_parent_never_wait_for_each_others_slots() -> None:
    @tool(effect="none")
    async def leaf(n: int) -> int:
        """Leaf."""
        await asyncio.sleep(0)
        return n

    @tool(effect="none")
    async def middle(ctx: ToolContext) -> str:
        """Middle."""
        return (await ctx.call("leaf", {"n": 1})).text

    @tool(effect="none")
    async def root(ctx: ToolContext) -> list[str]:
        """Root."""
        return [r.text for r in await asyncio.gather(ctx.call("leaf", {"n": 0}), ctx.call("middle", {}), ctx.call("middle", {}))]

    async with Engine([leaf, middle, root], limits=Limits(parallel_calls=1), timeout_s=PATIENCE_S) as engine:
        assert (await said(engine, call("root"))).structured == ["0", "1", "1"]
        assert (await said(engine, call("leaf", n=7))).structured == 7


async def test_closing_ends_what_runs_and_the_record_has_its_end() -> None:
    started = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        started.set()
        await asyncio.Event().wait()

    engine = Engine([hang])
    task = asyncio.create_task(engine.call(call("hang")))
    await started.wait()
    await engine.close()
    result = result_of(await asyncio.wait_for(task, PATIENCE_S))
    assert (result.status, result.failure_class) == ("unknown", "killed")
    assert list(ends(engine).values()) == [1]


async def test_a_call_that_a_slow_policy_holds_when_the_engine_closes_has_its_end_and_never_runs(tmp_path: Path, ledger: Ledger) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    class Slow:
        async def decide(self, call: ValidatedCall) -> Verdict:
            asked.set()
            await release.wait()
            return Allow()

    path = tmp_path / "journal.db"
    engine = Engine([paying(ledger)], policies=[Slow()], journal=SqliteJournal(path), limits=Limits(grace_s=0))
    task = asyncio.create_task(engine.call(call("pay", to="ann")))
    await asked.wait()
    await engine.close()
    release.set()
    assert not result_of(await task).success
    journal = SqliteJournal(path)
    assert [event.kind for event in journal.read()] == ["call.received", "call.aborted"]
    await journal.close()
    assert ledger.lines() == []


async def test_a_close_that_is_interrupted_finishes_all_the_same(tmp_path: Path) -> None:
    started = asyncio.Event()
    path = tmp_path / "journal.db"
    engine = Engine(journal=SqliteJournal(path))

    @tool
    async def leave() -> None:
        """Close the engine that runs this tool."""
        started.set()
        await engine.close()

    engine.register(leave)
    task = asyncio.create_task(engine.call(call("leave")))
    await started.wait()
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing, task], timeout=PATIENCE_S)
    await asyncio.wait_for(engine.close(), PATIENCE_S)
    await SqliteJournal(path).close()


@pytest.mark.parametrize("journal", ["memory", "sqlite"])
async def test_text_that_utf8_cannot_hold_hurts_neither_the_call_nor_the_record(journal: str, tmp_path: Path) -> None:
    odd = "a\ud800b"

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    class Odd:
        answers: list[Verdict] = [Deny(reason=odd, rule=odd), Ask(question=odd, rule=odd), Allow(rule=odd)]

        async def decide(self, call: ValidatedCall) -> Verdict:
            return self.answers.pop(0)

    kept = SqliteJournal(tmp_path / "journal.db") if journal == "sqlite" else None
    async with Engine([look], policies=[Odd()], journal=kept) as engine:
        assert (await said(engine, RawCall(name=odd, arguments="{}"))).code == "unknown_tool"
        assert (await said(engine, RawCall(name="look", id=odd, arguments="{}", reasoning=odd))).failure_class == "denied"
        assert isinstance(await engine.call(RawCall(name="look")), Suspended)
        assert (await said(engine, RawCall(name="look"))).success
        engine.control.kill("c", odd)
        assert isinstance(await engine.call(RawCall(name="look"), Scope(conversation="c")), Aborted)
        with pytest.raises(UsageError, match=r"Scope\.principal"):
            await engine.call(RawCall(name="look"), Scope(principal=odd))
        assert set(ends(engine).values()) == {1}
        for event in engine.journal.read():
            event.body.decode("utf-8")
        if kept is not None:
            assert kept.verify() is None


async def test_a_call_that_did_not_happen_may_be_handed_in_again_under_its_own_id(ledger: Ledger) -> None:
    async with Engine([paying(ledger, asyncio.Event())], timeout_s=0.05, clock=ManualClock()) as engine:
        first = await said(engine, call("pay", id="a", to="ann"))
        engine.settle(first.uid, happened=False)
        again = await said(engine, call("pay", id="a", to="ann"))
    assert not again.metadata.replayed
    assert ledger.lines() == ["ann 1", "ann 1"]


async def test_whoever_joins_a_call_that_is_then_denied_hears_that_nothing_started(ledger: Ledger) -> None:
    release = asyncio.Event()

    class Slow:
        async def decide(self, call: ValidatedCall) -> Verdict:
            await release.wait()
            return Deny(reason="no")

    async with Engine([paying(ledger)], policies=[Slow()]) as engine:
        tasks = [asyncio.create_task(engine.call(call("pay", key="k", to="ann"))) for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        release.set()
        results = [result_of(await task) for task in tasks]
    assert [result.failure_class for result in results] == ["denied", "not_started"]


async def test_what_a_replay_hands_out_is_the_callers_own(ledger: Ledger) -> None:
    @tool
    async def make() -> dict[str, list[int]]:
        """Make."""
        return {"items": [1]}

    async with Engine([make]) as engine:
        first = await said(engine, call("make", id="a"))
        first.structured["items"].append(2)  # type: ignore[index]
        second = await said(engine, call("make", id="a"))
        second.structured["items"].append(3)  # type: ignore[index]
        assert (await said(engine, call("make", id="a"))).text == '{"items":[1]}'


async def test_a_hook_that_returns_no_arguments_at_all_is_a_failed_hook(ledger: Ledger) -> None:
    @before_call("pay", kind="transform")
    def five(call: ValidatedCall) -> int:
        return 5

    async with Engine([paying(ledger)], hooks=[five], policies=[Rules.parse("")]) as engine:
        assert (await said(engine, call("pay", to="ann"))).code == "hook_failed"
