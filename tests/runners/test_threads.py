"""Tests of behaviour specific to the thread runner: threads that never return, and the pool that loses them."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from callgate import Limits
from callgate._runners.thread_runner import ThreadRunner
from callgate.protocols import Execution
from callgate.tools import FunctionTool, ToolContext, tool
from tests.runners.runner_requests import Made
from tests.waiting import HANGS_S, PATIENCE_S, past_deadline, soon

variable: ContextVar[str] = ContextVar("variable", default="unset")


class Held:
    """A tool that does not return until its gate is opened."""

    def __init__(self) -> None:
        self.gate = threading.Event()

        @tool
        def held(context: ToolContext) -> str:
            """Wait."""
            context.progress("begun")
            self.gate.wait(HANGS_S)
            context.progress("after the end")
            return "late"

        self.tool: FunctionTool = held

    async def outlasted(self, runner: ThreadRunner) -> Made:
        """Make a call of this tool that is abandoned at its deadline while its thread still waits."""
        made = Made(self.tool)
        execution = await past_deadline(runner.run(made.request), lambda: made.progress)
        assert (execution.status, execution.abandoned, execution.partial) == ("timed_out", True, "begun")
        return made


@tool
def where() -> str:
    """Return the name and id of its thread."""
    return threading.current_thread().name + str(threading.get_ident())


async def test_a_thread_that_does_not_return_is_abandoned_and_its_result_is_late() -> None:
    held = Held()
    late: list[tuple[str, Execution]] = []
    runner = ThreadRunner(Limits(), lambda uid, execution: late.append((uid, execution)))
    made = await held.outlasted(runner)
    assert runner.abandoned == 1
    held.gate.set()
    assert await soon(lambda: late)
    assert [(uid, execution.value) for uid, execution in late] == [(made.uid, "late")]
    assert (runner.abandoned, runner.late) == (0, 1)
    assert [text for text, _ in made.progress] == ["begun"], "progress after the end was reported"
    await runner.close()


async def test_a_stuck_thread_does_not_occupy_the_pool() -> None:
    runner = ThreadRunner(Limits(parallel_threads=1))
    held = Held()
    await held.outlasted(runner)
    execution = await runner.run(Made(where, timeout_s=PATIENCE_S).request)
    assert execution.status == "returned"
    held.gate.set()
    await runner.close()


async def test_no_more_tools_are_started_after_too_many_abandoned_threads() -> None:
    runner = ThreadRunner(Limits(abandoned_threads=2))
    held = Held()
    for _ in range(2):
        await held.outlasted(runner)
    execution = await runner.run(Made(where).request)
    assert execution.status == "not_started"
    assert "2 is the limit" in execution.error
    assert "runner='process'" in execution.error
    held.gate.set()
    assert await soon(lambda: runner.abandoned == 0)
    assert (await runner.run(Made(where).request)).status == "returned"
    await runner.close()


async def test_a_call_that_ends_while_waiting_for_a_thread_is_not_started() -> None:
    runner = ThreadRunner(Limits(parallel_threads=1))
    held = Held()
    busy = Made(held.tool)
    running = asyncio.ensure_future(runner.run(busy.request))
    assert await soon(lambda: busy.progress)
    entered: list[int] = []

    @tool
    def enter() -> None:
        """Record that it ran."""
        entered.append(1)

    late, killed = Made(enter, timeout_s=0.05), Made(enter)
    waiting = [asyncio.ensure_future(runner.run(made.request)) for made in (late, killed)]
    await asyncio.sleep(0)
    killed.kill.abort("killed")
    assert [execution.status for execution in await asyncio.gather(*waiting)] == ["not_started", "not_started"]
    held.gate.set()
    assert (await running).status == "returned"
    assert (await runner.run(Made(where).request)).status == "returned"
    assert entered == []
    await runner.close()


async def test_threads_are_reused_and_receive_context_variables() -> None:
    runner = ThreadRunner(Limits())
    found = {(await runner.run(Made(where).request)).value for _ in range(20)}
    assert len(found) == 1

    @tool
    def look() -> str:
        """Read a context variable and change it."""
        value = variable.get()
        variable.set("tool")
        return value

    variable.set("host")
    assert (await runner.run(Made(look).request)).value == "host"
    assert variable.get() == "host"
    await runner.close()


async def test_many_sync_tools_run_concurrently() -> None:
    """None of 64 tools returns before all of them have started."""
    runner = ThreadRunner(Limits())
    together = threading.Barrier(64)

    @tool
    def meet() -> None:
        """Wait for the others."""
        together.wait(PATIENCE_S)

    executions = await asyncio.gather(*(runner.run(Made(meet).request) for _ in range(64)))
    assert {execution.status for execution in executions} == {"returned"}
    await runner.close()


async def test_excessive_progress_is_bounded_and_reports_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is per second, and the test's clock does not advance."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    runner = ThreadRunner(Limits())

    @tool
    def flood(context: ToolContext) -> None:
        """Report 20 MB of progress."""
        for _ in range(200):
            context.progress("x" * 100_000)
        context.progress("end")

    made = Made(flood)
    await runner.run(made.request)
    shown = made.text("progress")
    assert len(shown) < 1_200_000
    assert "characters left out" in shown
    assert shown.endswith("xend")
    await runner.close()


async def test_close_does_not_wait_for_a_stuck_thread() -> None:
    runner = ThreadRunner(Limits())
    held = Held()
    await held.outlasted(runner)
    await runner.close()
    assert runner.abandoned == 1
    held.gate.set()
