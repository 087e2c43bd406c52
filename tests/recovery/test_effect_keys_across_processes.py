"""A tool with a key of its effect: the refund of one order is paid once, whatever processes hand it in and however they die.

The ledger that the tool writes decides what happened, not the journal under test.
"""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from callgate import Engine, Scope
from callgate.agent import Agent
from tests.effect_ledger import Ledger
from tests.recovery.effect_key_process import ORDER, Refunder, refunded, refunding, refunds
from tests.recovery.paused_run_process import opened
from tests.recovery.test_two_processes import ended, stand_still, stands
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="stops and kills")]

_LONG_S, _SHORT_S = 3_000, 0.6


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "journal.db") if request.param == "sqlite" else str(request.getfixturevalue("database"))


def engine_at(place: str, ledger: Ledger) -> Engine:
    return Engine([refunding(ledger)], journal=opened(place, _LONG_S))


def killed_in_the_tool(place: str, ledger: Ledger, run: str) -> None:
    with refunds(place, ledger, run, "tool") as process:
        stands(process)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)


async def test_processes_that_refund_one_order_at_once_pay_it_once(place: str, ledger: Ledger) -> None:
    await opened(place, _LONG_S).close()
    with ExitStack() as stack:
        processes = [stack.enter_context(refunds(place, ledger, f"run-{number}", "start")) for number in range(4)]
        for process in processes:
            stands(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go on\n")
            process.stdin.flush()
        results = [ended(process) for process in processes]
    assert ledger.lines() == [ORDER]
    assert {(result["status"], result["text"]) for result in results} == {("ok", f"refunded {ORDER}")}
    assert sorted(result["again"] for result in results) == [False, True, True, True]


async def test_a_process_waits_for_the_one_that_refunds_the_order(place: str, ledger: Ledger) -> None:
    with refunds(place, ledger, "one", "tool") as first, refunds(place, ledger, "two", "start") as second:
        stands(first)
        stands(second)
        assert second.stdin is not None
        second.stdin.write("go on\n")
        second.stdin.flush()
        assert ended(first)["again"] is False
        result = ended(second)
    assert ledger.lines() == [ORDER]
    assert (result["status"], result["text"], result["again"]) == ("ok", f"refunded {ORDER}", True)


async def test_a_refund_whose_process_was_killed_is_unknown_in_every_run(place: str, ledger: Ledger) -> None:
    killed_in_the_tool(place, ledger, "one")
    async with engine_at(place, ledger) as engine:
        for run in ("one", "two", "three"):
            result = await refunded(engine, run)
            assert (result.status, result.code) == ("unknown", "outcome_unknown")
            assert isinstance(result.structured, dict)
            assert result.structured["earlier_call"] == "one/0/0"
    assert ledger.lines() == [ORDER]


@pytest.mark.parametrize(("happened", "lines"), [(True, [ORDER]), (False, [ORDER, ORDER])])
async def test_what_the_operator_says_of_a_killed_refund_counts_in_every_run(
    place: str, ledger: Ledger, happened: bool, lines: list[str]
) -> None:
    killed_in_the_tool(place, ledger, "one")
    async with engine_at(place, ledger) as engine:
        await engine.runs.open(Scope(run="one"))
        await engine.settle("one/0/0", happened=happened)
    async with engine_at(place, ledger) as engine:
        results = [await refunded(engine, run) for run in ("two", "three")]
    assert [result.status for result in results] == ["ok", "ok"]
    assert ledger.lines() == lines


async def test_a_process_killed_between_its_claim_and_its_start_leaves_the_order_free(place: str, ledger: Ledger) -> None:
    with refunds(place, ledger, "one", "claimed") as process:
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    async with engine_at(place, ledger) as engine:
        claims = [event.call for event in engine.journal.read() if event.kind == "effect.claimed"]
        result = await refunded(engine, "two")
    assert claims == ["one/0/0"]
    assert (result.status, result.text, ledger.lines()) == ("ok", f"refunded {ORDER}", [ORDER])


async def test_only_the_resumed_run_finishes_an_idempotent_refund_and_other_agents_get_its_result(place: str, ledger: Ledger) -> None:
    with refunds(place, ledger, "one", "agent") as process:
        stands(process)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    async with (
        Engine([refunding(ledger, effect="idempotent")], journal=opened(place, _LONG_S)) as engine,
        Agent(Refunder(), engine) as agent,
    ):
        before = await agent.run("Refund it.", scope=Scope(run="two"))
        resumed = await agent.resume("one")
        after = await agent.run("Refund it.", scope=Scope(run="three"))
    results = [run.results[0] for run in (before, resumed, after)]
    assert [(result.status, result.metadata.replayed) for result in results] == [("unknown", False), ("ok", False), ("ok", True)]
    assert ledger.lines() == [ORDER, ORDER]  # the second one with the same idempotency key, which the tool promises to be one effect


async def test_a_paused_process_that_lost_the_key_is_not_overtaken(place: str, ledger: Ledger) -> None:
    """SIGSTOP for longer than its lease: the other does not pay either, and the paused call keeps the order."""
    with refunds(place, ledger, "one", "tool", _SHORT_S) as process:
        stands(process)
        stand_still(process, place)
        async with engine_at(place, ledger) as engine:
            assert (await refunded(engine, "two")).status == "unknown"
            process.send_signal(signal.SIGCONT)
            late = ended(process)
            result = await refunded(engine, "three")
    assert ledger.lines() == [ORDER]
    assert result.status == late["status"]  # the server ends the connection of one that stood still: its result is lost then
