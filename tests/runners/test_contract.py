"""Tests of the runner contract, run against every runner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from callgate import Limits
from callgate._clock import SystemClock
from callgate._runners import Runners
from callgate._runners.return_values import read_result
from callgate.protocols import Execution, Runner
from tests.runners import fixture_tools
from tests.runners.fixture_tools import pick
from tests.runners.runner_requests import Made, marked
from tests.waiting import past_deadline, soon

KINDS = [
    pytest.param(("inline", "async"), id="inline"),
    pytest.param(("thread", "sync"), id="thread"),
    pytest.param(("thread", "async"), id="thread, async tool"),
    pytest.param(("process", "sync"), id="process", marks=pytest.mark.process),
    pytest.param(("process", "async"), id="process, async tool", marks=pytest.mark.process),
    pytest.param(("remote", "sync"), id="behind a socket", marks=pytest.mark.process),
    pytest.param(("remote", "async"), id="behind a socket, async tool", marks=pytest.mark.process),
]


class Setup:
    def __init__(self, runner: str, flavour: str, own: dict[str, Runner]) -> None:
        self.name = runner
        self.flavour = flavour
        self.late: list[tuple[str, Execution]] = []
        self.runners = Runners(Limits(), SystemClock(), on_late=lambda uid, execution: self.late.append((uid, execution)), own=own)
        self.runner: Runner = self.runners.pick(runner)

    async def run(self, made: Made) -> Execution:
        """Run an attempt, and decode its value if the runner leaves that to the engine."""
        execution = await self.runner.run(made.request)
        return execution if execution.read else read_result(execution, Limits().result_bytes)

    def made(self, tool: str, arguments: dict[str, object] | None = None) -> Made:
        return Made(pick(self.flavour, tool), arguments)

    @property
    def stoppable(self) -> bool:
        return (self.name, self.flavour) != ("thread", "sync")


@pytest.fixture(params=KINDS)
async def setup(request: pytest.FixtureRequest) -> AsyncIterator[Setup]:
    runner, flavour = request.param
    own: dict[str, Runner] = {"remote": request.getfixturevalue("far").runner()} if runner == "remote" else {}
    made = Setup(runner, flavour, own)
    yield made
    await made.runners.close()
    assert await soon(lambda: asyncio.all_tasks() == {asyncio.current_task()}), "a task is still running"


@pytest.mark.parametrize("value", [None, "", "text", 2**53 + 1, [1, {"a": None}], {"success": True}])
async def test_the_returned_value_of_a_tool_is_the_result(setup: Setup, value: object) -> None:
    execution = await setup.run(setup.made("echo", {"value": value}))
    assert execution == Execution(status="returned", value=value, read=True)


@pytest.mark.parametrize(
    ("kind", "error_type", "text"),
    [
        ("value", "ValueError", "the account is closed"),
        ("exit", "SystemExit", "called sys.exit(3)"),
        ("interrupt", "KeyboardInterrupt", "it gave no message"),
        ("cancelled", "CancelledError", "the tool cancelled itself; nobody had asked it to stop"),
        ("memory", "MemoryError", "it gave no message"),
        ("group", "ExceptionGroup", "both (2 sub-exceptions): one; the key 'two' was not found"),
        ("surrogate", "ValueError", "\\ud800 bad"),
        ("no text", "BadText", "its message cannot be shown"),
    ],
)
async def test_every_exception_raised_by_a_tool_is_returned_as_an_error(setup: Setup, kind: str, error_type: str, text: str) -> None:
    execution = await setup.run(setup.made("fail", {"kind": kind}))
    assert (execution.status, execution.error_type, execution.error) == ("raised", error_type, text)


async def test_a_very_long_error_text_is_truncated_with_a_notice(setup: Setup) -> None:
    execution = await setup.runner.run(setup.made("fail", {"kind": "long"}).request)
    assert len(execution.error) < 66_000
    assert "characters left out" in execution.error


async def test_the_retry_information_of_a_tool_error_is_returned(setup: Setup) -> None:
    execution = await setup.runner.run(setup.made("fail", {"kind": "retryable"}).request)
    assert (execution.retryable, execution.not_started, execution.retry_after_s) == (True, True, 2.5)


async def test_a_refused_connection_in_a_tool_does_not_mean_not_started(setup: Setup) -> None:
    """The tool may have sent an earlier request; only `Retryable(not_started=True)` describes the whole call."""
    execution = await setup.runner.run(setup.made("fail", {"kind": "refused"}).request)
    assert (execution.retryable, execution.not_started) == (True, False)


async def test_a_tool_that_hangs_ends_at_its_deadline(setup: Setup) -> None:
    """Requirement A31: the call ends at the deadline and not before."""
    made = setup.made("hang")
    execution = await past_deadline(setup.runner.run(made.request), lambda: made.progress)
    assert execution.status == "timed_out"
    assert execution.abandoned is not setup.stoppable


async def test_a_kill_ends_the_tool_at_once(setup: Setup) -> None:
    """Requirement A34: the tool would run longer than the test's timeout."""
    made = setup.made("hang")
    running = asyncio.ensure_future(setup.runner.run(made.request))
    assert await soon(lambda: made.progress)
    made.kill.abort("killed by the user")
    execution = await running
    assert (execution.status, execution.error) == ("killed", "killed by the user")
    assert execution.abandoned is not setup.stoppable


async def test_cancelling_run_kills_the_tool_and_raises_cancelled_error(setup: Setup) -> None:
    made = setup.made("hang")
    running = asyncio.ensure_future(setup.runner.run(made.request))
    assert await soon(lambda: made.progress)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert setup.stoppable == (setup.runners.abandoned == 0)
    assert not marked(made.uid)


async def test_a_timeout_of_the_host_around_a_call_works(setup: Setup) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await setup.runner.run(setup.made("hang").request)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_call_killed_before_its_start_is_not_started(setup: Setup) -> None:
    made = setup.made("hang")
    made.kill.abort("killed by the user")
    execution = await setup.runner.run(made.request)
    assert (execution.status, made.progress) == ("not_started", [])


async def test_progress_arrives_in_order_and_before_the_result(setup: Setup) -> None:
    made = setup.made("steps", {"count": 200})
    await setup.runner.run(made.request)
    assert [text for text, _ in made.progress] == [str(number) for number in range(200)]


async def test_a_tool_cannot_change_the_recorded_arguments(setup: Setup) -> None:
    made = setup.made("spoil", {"items": [1]})
    execution = await setup.runner.run(made.request)
    assert (execution.value, made.request.approved.call.arguments) == (2, {"items": [1]})


async def test_an_answer_after_the_end_is_reported_as_late(setup: Setup) -> None:
    """The late answer is discarded and recorded."""
    if setup.flavour == "sync":
        pytest.skip("the async twin of this runner covers it; threads have a test of their own")
    made = Made(fixture_tools.answers_when_stopped)
    running = asyncio.ensure_future(setup.runner.run(made.request))
    assert await soon(lambda: made.progress)
    made.kill.abort("killed")
    assert (await running).status == "killed"
    assert await soon(lambda: setup.late)
    assert [(uid, execution.value) for uid, execution in setup.late] == [(made.uid, "too late")]
    assert setup.runners.late == 1


async def test_concurrent_calls_get_their_own_results(setup: Setup) -> None:
    made = [setup.made("echo", {"value": number}) for number in range(12)]
    executions = await asyncio.gather(*(setup.runner.run(one.request) for one in made))
    assert [execution.value for execution in executions] == list(range(12))


async def test_no_call_is_started_after_close(setup: Setup) -> None:
    await setup.runner.close()
    await setup.runner.close()
    execution = await setup.runner.run(setup.made("echo", {"value": 1}).request)
    assert execution.status == "not_started"
