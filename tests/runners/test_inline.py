"""Tests of behaviour specific to the inline runner, which shares the caller's task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import ContextVar
from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest

from callgate import AbortController, Engine, RawCall
from callgate._runners.inline_runner import InlineRunner
from callgate.protocols import Execution
from callgate.tools import FunctionTool, ToolContext, tool
from tests.engine_calls import call, result_of, said
from tests.runners.runner_requests import Made
from tests.waiting import HANGS_S, PATIENCE_S, past_deadline, soon


class Kit:
    def __init__(self) -> None:
        self.late: list[Execution] = []
        released.clear()
        self.runner = InlineRunner(lambda uid, execution: self.late.append(execution))


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    made = Kit()
    yield made
    await made.runner.close()


released: list[bool] = []
"""Whether the tools that ignore a stop may end."""


@tool
async def at_once() -> str:
    """Return without waiting."""
    return "now"


@tool
async def own_limit() -> str:
    """Use a timeout of its own."""
    try:
        async with asyncio.timeout(0.01):
            try:
                await asyncio.sleep(HANGS_S)
            finally:
                await asyncio.sleep(0.05)
    except TimeoutError:
        return "fallback"
    return "?"


@tool
async def failing_group() -> str:
    """Let a task group cancel itself after a failure."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("child")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.sleep(HANGS_S)
    except ExceptionGroup:
        return "handled"
    return "?"


@tool
async def foreign_group() -> str:
    """Let an anyio task group cancel itself from a child task, as a connection to the first address that answers does."""
    async with anyio.create_task_group() as group:

        async def answer() -> None:
            await asyncio.sleep(0)
            group.cancel_scope.cancel()

        group.start_soon(answer)
        with anyio.move_on_after(HANGS_S):
            await anyio.sleep(HANGS_S)
    await anyio.lowlevel.checkpoint()
    return "connected"


@tool
async def cancels_its_task() -> None:
    """Cancel its own task."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(HANGS_S)


@tool
async def waits_for_stubborn(context: ToolContext) -> None:
    """Wait for a task that ignores cancellation."""
    context.progress("begun")
    await asyncio.ensure_future(_stubborn())


async def _stubborn() -> None:
    while not released:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)


@tool
async def swallows(context: ToolContext) -> str:
    """Ignore every cancellation until it is released."""
    context.progress("begun")
    await _stubborn()
    return "late"


@tool
async def spins(context: ToolContext) -> None:
    """Yield to the event loop without ever waiting, and ignore the stop."""
    context.progress("begun")
    while not released:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


@tool
async def breaks_late(context: ToolContext) -> None:
    """Ignore the stop and then raise."""
    context.progress("begun")
    await _stubborn()
    raise ValueError("after the end")


@tool
async def tidies_up() -> None:
    """Wait a little during its cleanup."""
    try:
        await asyncio.sleep(HANGS_S)
    finally:
        await asyncio.sleep(0.02)
        tidied.append(True)


tidied: list[bool] = []


@tool
async def foreign_wait() -> None:
    """Wait for an awaitable that yields something other than a future."""
    await _Odd()


class _Odd:
    def __await__(self):  # type: ignore[no-untyped-def]
        yield 5


variable: ContextVar[str] = ContextVar("variable", default="unset")


@tool
async def sets_variable() -> str:
    """Set a context variable before and after a wait."""
    variable.set("tool")
    await asyncio.sleep(0)
    return variable.get()


async def test_a_tool_that_returns_at_once_needs_no_timer_and_no_task(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the fast path touched the event loop")

    with monkeypatch.context() as patch:
        for name in ("call_later", "call_at", "call_soon", "create_task", "create_future"):
            patch.setattr(loop, name, refuse)
        execution = await kit.runner.run(Made(at_once).request)
    assert execution == Execution(status="returned", value="now")


async def test_a_timeout_inside_the_tool_does_not_end_the_call(kit: Kit) -> None:
    """The tool's cleanup may take longer than the grace period, because no stop was requested."""
    execution = await kit.runner.run(Made(own_limit, grace_s=0.01).request)
    assert (execution.status, execution.value) == ("returned", "fallback")
    assert _cancelling() == 0


async def test_a_failing_task_group_handled_inside_the_tool_does_not_end_the_call(kit: Kit) -> None:
    execution = await kit.runner.run(Made(failing_group).request)
    assert (execution.status, execution.value) == ("returned", "handled")
    assert _cancelling() == 0


async def test_an_anyio_cancel_scope_inside_the_tool_receives_its_own_cancellation(kit: Kit) -> None:
    """anyio identifies its cancellation by the message; HTTP clients connect like this."""
    execution = await kit.runner.run(Made(foreign_group).request)
    assert (execution.status, execution.value) == ("returned", "connected")
    assert _cancelling() == 0


async def test_a_cancel_scope_of_the_host_catches_its_cancellation(kit: Kit) -> None:
    made = Made(swallows, grace_s=0.05)
    with anyio.CancelScope() as scope:
        asyncio.get_running_loop().call_later(0.01, scope.cancel)
        await kit.runner.run(made.request)
    assert scope.cancelled_caught
    assert _cancelling() == 0
    released.append(True)
    assert await soon(lambda: kit.late)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize(("subject", "answer"), [(own_limit, "fallback"), (failing_group, "handled")], ids=["limit", "group"])
async def test_a_timeout_or_task_group_inside_a_nested_tool_does_not_end_its_call(subject: FunctionTool, answer: str, depth: int) -> None:
    """Nested inline tools share one task, so the runner must not take the innermost tool's cancellation for the host's."""

    def around(name: str, called: str) -> FunctionTool:
        @tool(name=name, effect="none")
        async def outer(context: ToolContext) -> str:
            """Call another tool."""
            return (await context.call(called, {})).text

        return outer

    names = [subject.name, *(f"outer{level}" for level in range(depth))]
    async with Engine([subject, *(around(name, called) for called, name in pairwise(names))]) as engine:
        outcomes = await engine.call_many([RawCall(name=names[-1], id="1"), RawCall(name=names[-1], id="2")])
        assert [result_of(outcome).text for outcome in outcomes] == [answer, answer]
    assert _cancelling() == 0


async def test_a_timeout_around_a_nested_call_ends_only_that_call() -> None:
    @tool(effect="none")
    async def sleeps() -> None:
        """Take long."""
        await asyncio.sleep(HANGS_S)

    @tool(effect="none")
    async def bounded(context: ToolContext) -> str:
        """Call another tool, for a moment."""
        try:
            async with asyncio.timeout(0.05):
                await context.call("sleeps", {})
        except TimeoutError:
            return "given up"
        return "?"

    async with Engine([sleeps, bounded]) as engine:
        assert (await said(engine, call("bounded"))).text == "given up"
    assert _cancelling() == 0


async def test_a_tool_that_cancels_its_own_task_fails_without_cancelling_the_caller(kit: Kit) -> None:
    execution = await kit.runner.run(Made(cancels_its_task).request)
    assert (execution.status, execution.error_type) == ("raised", "CancelledError")
    assert _cancelling() == 0
    await asyncio.sleep(0)


@pytest.mark.parametrize("subject", [swallows, waits_for_stubborn, spins], ids=lambda subject: subject.name)
async def test_a_coroutine_that_refuses_to_stop_is_abandoned(kit: Kit, subject: object) -> None:
    made = Made(subject, grace_s=0.05)  # type: ignore[arg-type]
    execution = await past_deadline(kit.runner.run(made.request), lambda: made.progress)
    assert (execution.status, execution.abandoned) == ("timed_out", True)
    assert kit.runner.abandoned == 1
    released.append(True)
    assert await soon(lambda: kit.runner.abandoned == 0)
    assert kit.runner.late == len(kit.late)


async def test_late_results_and_late_errors_are_reported(kit: Kit) -> None:
    for subject in (swallows, breaks_late):
        made = Made(subject, grace_s=0.02)
        await past_deadline(kit.runner.run(made.request), lambda made=made: made.progress)  # type: ignore[misc]
    released.append(True)
    assert await soon(lambda: len(kit.late) == 2)
    assert {(late.status, late.value, late.error) for late in kit.late} == {
        ("returned", "late", ""),
        ("raised", None, "after the end"),
    }


async def test_asynchronous_clean_up_may_use_the_grace_period(kit: Kit) -> None:
    tidied.clear()
    execution = await kit.runner.run(Made(tidies_up, timeout_s=0.02, grace_s=PATIENCE_S).request)
    assert (execution.status, execution.abandoned, tidied) == ("timed_out", False, [True])


async def test_a_cancellation_by_the_host_is_raised_although_the_tool_swallows_it(kit: Kit) -> None:
    made = Made(swallows, grace_s=0.05)
    running = asyncio.ensure_future(kit.runner.run(made.request))
    assert await soon(lambda: made.progress)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert kit.runner.abandoned == 1
    released.append(True)
    assert await soon(lambda: kit.late)


async def test_awaiting_a_foreign_awaitable_is_an_error_of_the_tool(kit: Kit) -> None:
    execution = await kit.runner.run(Made(foreign_wait).request)
    assert (execution.status, execution.error_type) == ("raised", "RuntimeError")
    assert "another event loop or library" in execution.error


async def test_context_variables_set_by_a_tool_do_not_leak(kit: Kit) -> None:
    execution = await kit.runner.run(Made(sets_variable).request)
    assert (execution.value, variable.get()) == ("tool", "unset")


async def test_a_kill_caused_by_the_tool_itself_ends_the_tool(kit: Kit) -> None:
    kill: list[AbortController] = []

    @tool
    async def kills_its_turn() -> None:
        """Kill its turn before and after its first wait."""
        await asyncio.sleep(0)
        kill[0].abort("enough")
        await asyncio.sleep(HANGS_S)

    made = Made(kills_its_turn)
    kill.append(made.kill)
    execution = await kit.runner.run(made.request)
    assert (execution.status, execution.error) == ("killed", "enough")


async def test_sync_tools_and_tools_that_return_a_future_are_supported(kit: Kit) -> None:
    @tool
    def plain() -> int:
        """Return a value."""
        return 1

    @tool
    def future() -> object:
        """Return a future."""
        found = asyncio.get_running_loop().create_future()
        found.set_result(2)
        return found

    assert [(await kit.runner.run(Made(one).request)).value for one in (plain, future)] == [1, 2]


@pytest.mark.parametrize("depth", [1, 3])
async def test_a_cancellation_ends_nested_calls_from_the_innermost_outwards(kit: Kit, depth: int) -> None:
    """`ctx.call` runs the inner tool in the same task, so a host's cancellation reaches the innermost tool first."""
    entered: list[int] = []
    order: list[int] = []

    def nest(level: int) -> Callable[[], object]:
        @tool
        async def level_of() -> object:
            """Call the next level."""
            entered.append(level)
            try:
                if level == depth:
                    await asyncio.sleep(HANGS_S)
                return (await kit.runner.run(Made(nest(level + 1)).request)).value  # type: ignore[arg-type]
            finally:
                order.append(level)

        return level_of

    running = asyncio.ensure_future(kit.runner.run(Made(nest(1)).request))  # type: ignore[arg-type]
    assert await soon(lambda: len(entered) == depth)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert order == list(range(depth, 0, -1))


def _cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()
