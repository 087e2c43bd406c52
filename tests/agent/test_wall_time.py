"""A run's wall time is a deadline: calls and passes that still run then are ended, and the result says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from callgate import Engine, Scope, SqliteJournal, Tool, tool
from callgate.agent import Agent, Budget, RunResult, Settings
from callgate.agent.compaction import Compaction
from callgate.loop_decision import LoopRules
from callgate.messages import AssistantMessage, Message
from callgate.testing import ManualClock
from tests.agent.scripted_model import Answer, Gate, Script, call, says, tool_texts
from tests.host_fakes import Asks

TIMED = Settings(budget=Budget(wall_s=60))


class Bench:
    """An agent with a clock that the test advances."""

    def __init__(
        self, *answers: Answer, tools: tuple[Tool, ...] = (), settings: Settings = TIMED, compact: Compaction | None = None
    ) -> None:
        self.clock = ManualClock()
        self.model = Script(*answers)
        self.engine = Engine(tools, clock=self.clock)
        self.agent = Agent(self.model, self.engine, settings=settings, compact=compact)

    async def run(self, reached: asyncio.Event, seconds: float = 61) -> RunResult:
        """Run the agent, and advance the clock after `reached` is set."""
        running = asyncio.ensure_future(self.agent.run("Go.", conversation="c"))
        await reached.wait()
        self.clock.advance(seconds)
        try:
            return await running
        finally:
            await self.engine.close()


def waiting(reached: asyncio.Event, effect: str = "none") -> Tool:
    @tool(effect=effect)  # type: ignore[call-overload,untyped-decorator]
    async def wait(number: int = 1) -> str:
        """Wait for ever."""
        reached.set()
        await asyncio.Event().wait()
        return "never"

    return wait  # type: ignore[no-any-return]


async def test_a_pass_ends_at_the_wall_time_limit_and_its_text_is_kept() -> None:
    gate = Gate()
    bench = Bench([*says("So far")[:1], gate])
    result = await bench.run(gate.reached)
    assert (result.status, result.turn_status, result.text) == ("stopped", "budget_exhausted", "So far")
    assert "the run has used up its wall time: 61 of 60 s" in result.reason
    assert isinstance(result.messages[-1], AssistantMessage)
    assert bench.model.closed == 1


@pytest.mark.parametrize(("effect", "status"), [("none", "error"), ("once", "unknown")])
@pytest.mark.parametrize("failures", ["recover", "strict"])
async def test_a_running_call_ends_at_the_wall_time_limit_and_the_history_says_so(effect: str, status: str, failures: str) -> None:
    """The outcome of a call that may have taken effect is unknown; later calls of its message do not start. The budget ends the run."""
    reached = asyncio.Event()
    settings = replace(TIMED, rules=LoopRules(failures=failures))  # type: ignore[arg-type]
    calls = says(call("wait", id="1"), call("wait", {"number": 2}, id="2")) if effect == "once" else says(call("wait", id="1"))
    bench = Bench(calls, tools=(waiting(reached, effect),), settings=settings)
    result = await bench.run(reached)
    assert (result.status, result.turn_status) == ("stopped", "budget_exhausted")
    assert result.results[0].status == status
    assert [one.failure_class for one in result.results[1:]] == ["killed"] * len(result.results[1:])
    texts = tool_texts(result.messages)
    assert len(texts) == len(result.results)
    assert "wall time" in texts[0]
    assert len(bench.model.requests) == 1


async def test_an_early_started_call_ends_with_its_pass_at_the_wall_time_limit() -> None:
    reached = asyncio.Event()
    bench = Bench([*says(call("wait", id="1"))[:2], Gate()], tools=(waiting(reached),))
    result = await bench.run(reached)
    assert (result.turn_status, result.results, result.spent.calls) == ("budget_exhausted", (), 0)


async def test_the_pause_before_an_empty_answer_is_retried_ends_at_the_wall_time_limit() -> None:
    settings = Settings(empty_retries=1, budget=Budget(wall_s=60), empty_retry_s=600.0)
    bench = Bench(says(), says("never"), settings=settings)
    running = asyncio.ensure_future(bench.agent.run("Go."))
    while bench.clock.sleeping < 2:
        await asyncio.sleep(0)
    bench.clock.advance(61)
    assert (await running).turn_status == "budget_exhausted"
    await bench.engine.close()


async def test_a_compaction_ends_at_the_wall_time_limit() -> None:
    reached = asyncio.Event()

    async def endless(messages: Sequence[Message]) -> Sequence[Message]:
        reached.set()
        await asyncio.Event().wait()
        return messages

    bench = Bench(says("never"), compact=Compaction(at_tokens=1, compact=endless))
    assert (await bench.run(reached)).turn_status == "budget_exhausted"


async def test_a_run_that_ends_in_time_leaves_no_deadline_timer() -> None:
    bench = Bench(says("Done."), says("More."))
    assert (await bench.agent.run("Go.", conversation="c")).text == "Done."
    await asyncio.sleep(0)
    assert bench.clock.sleeping == 0
    bench.clock.advance(120)
    assert (await bench.agent.run("Go on.", conversation="c")).text == "More."
    await bench.engine.close()


async def test_waiting_for_approval_uses_no_wall_time_and_the_rest_applies_after_resume() -> None:
    reached = asyncio.Event()

    clock = ManualClock()
    model = Script(says(call("wait", id="1")))
    async with Engine([waiting(reached, "once")], policies=[Asks()], clock=clock) as engine:
        agent = Agent(model, engine, settings=TIMED)
        waits = await agent.run("Go.")
        assert waits.pending is not None
        clock.advance(1_000)
        await engine.answer(waits.pending.approvals[0].approval_id, allow=True)
        running = asyncio.ensure_future(agent.resume(waits))
        await reached.wait()
        clock.advance(59)
        await asyncio.sleep(0)
        assert not running.done()
        clock.advance(2)
        assert (await running).turn_status == "budget_exhausted"


async def test_a_resumed_run_continues_the_wall_time_of_its_record(tmp_path: Path) -> None:
    """Exact to the nanosecond. The time between the end of one process and the resume in another is not counted."""
    clock, journal = ManualClock(), tmp_path / "journal.db"

    @tool(effect="none")
    async def look() -> str:
        """Look for three seconds."""
        clock.advance(3)
        return "seen"

    @tool
    async def pay() -> str:
        """Pay for two seconds."""
        clock.advance(2)
        return "paid"

    def engine() -> Engine:
        return Engine([look, pay], policies=[Asks("pay")], clock=clock, journal=SqliteJournal(journal, clock=clock))

    async with engine() as first:
        result = await Agent(Script(says(call("look")), says(call("pay"))), first).run("Go.", scope=Scope(run="r"))
        assert (result.status, result.spent.wall_s) == ("waiting", 3.0)
        assert result.pending is not None
        await first.answer(result.pending.approvals[0].approval_id, allow=True)
    clock.advance(1_000)
    async with engine() as second:
        result = await Agent(Script(says("Done.")), second).resume("r")
        assert (result.text, result.spent.wall_s) == ("Done.", 5.0)
