"""Tasks that a tool in this process starts and does not wait for: they are counted, reported, and cancelled when the engine closes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, ToolContext, tool
from tests.engine_calls import bodies, call, result_of, said
from tests.waiting import PATIENCE_S, until

TOLD = "of the tasks that it had started still ran"


class LeftoverTasks:
    """Tasks that tools leave running."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[str]] = []
        self.release = asyncio.Event()

    async def work(self) -> str:
        await self.release.wait()
        return "done"

    def start(self) -> None:
        self.tasks.append(asyncio.create_task(self.work()))


def notes_of(result: Any) -> list[str]:
    return [note.text for note in result.metadata.notes if note.kind == "warning"]


@pytest.mark.parametrize("waits", [False, True], ids=["ends at once", "waits first"])
async def test_tasks_left_by_a_tool_are_counted_and_noted_until_they_end(waits: bool) -> None:
    left = LeftoverTasks()

    @tool(effect="none")
    async def leaves() -> str:
        """Leave two tasks."""
        if waits:
            await asyncio.sleep(0)
        left.start()
        left.start()
        return "done"

    async with Engine([leaves]) as engine:
        result = await said(engine, RawCall(name="leaves"))
        assert result.success
        assert [text.startswith(f"when the tool ended, 2 {TOLD}") for text in notes_of(result)] == [True]
        assert TOLD in str(bodies(engine, "call.completed")[0]), "the note is not in the record"
        assert engine.abandoned == 2
        left.release.set()
        await until(lambda: engine.abandoned == 0)
    assert [task.result() for task in left.tasks] == ["done", "done"], "the tasks did not run to their end"


async def test_tasks_left_by_a_failed_or_killed_call_are_counted() -> None:
    left, begun = LeftoverTasks(), asyncio.Event()

    @tool(effect="none")
    async def leaves(fails: bool) -> None:
        """Leave a task, and do not return."""
        left.start()
        if fails:
            raise ValueError("no")
        begun.set()
        await asyncio.Event().wait()

    async with Engine([leaves]) as engine:
        result = await said(engine, call("leaves", fails=True))
        assert isinstance(result.structured, dict)
        assert result.structured["tasks_left"] == 1
        running = asyncio.ensure_future(engine.call(call("leaves", fails=False), Scope(conversation="c")))
        await begun.wait()
        engine.control.kill("c")
        await asyncio.wait_for(running, PATIENCE_S)
        assert engine.abandoned == 2
    assert all(task.cancelled() for task in left.tasks)


async def test_closing_cancels_leftover_tasks_and_the_tasks_they_started() -> None:
    left = LeftoverTasks()

    async def parent() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        left.start()
        await asyncio.Event().wait()

    @tool(effect="none")
    async def leaves() -> str:
        """Leave a task that starts another one later."""
        left.tasks.append(asyncio.create_task(parent()))  # type: ignore[arg-type]
        return "done"

    async with Engine([leaves]) as engine:
        await said(engine, RawCall(name="leaves"))
        await until(lambda: len(left.tasks) == 2)
        assert engine.abandoned == 2
    assert [task.cancelled() for task in left.tasks] == [True, True]


async def test_a_task_that_ignores_cancellation_does_not_block_close() -> None:
    release = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def stubborn() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    @tool(effect="none")
    async def leaves() -> str:
        """Leave a task."""
        tasks.append(asyncio.create_task(stubborn()))
        return "done"

    engine = Engine([leaves])
    await said(engine, RawCall(name="leaves"))
    await asyncio.wait_for(engine.close(), PATIENCE_S)
    assert engine.abandoned == 1
    release.set()
    await tasks[0]


async def test_tasks_of_a_thread_tool_and_of_a_returned_awaitable_are_counted() -> None:
    left = LeftoverTasks()

    @tool(effect="none")
    def threaded(ctx: ToolContext) -> str:
        """Leave a task in the engine's loop."""
        assert ctx.loop is not None

        async def start() -> None:
            left.start()

        asyncio.run_coroutine_threadsafe(start(), ctx.loop).result(PATIENCE_S)
        return "done"

    @tool(effect="none")
    def returns() -> object:
        """Return an awaitable."""

        async def rest() -> str:
            left.start()
            return "done"

        return rest()

    async with Engine([threaded, returns]) as engine:
        for name in ("threaded", "returns"):
            result = await said(engine, RawCall(name=name))
            assert [TOLD in text for text in notes_of(result)] == [True], name
        assert engine.abandoned == 2
    assert [task.cancelled() for task in left.tasks] == [True, True]


async def test_tasks_of_the_host_and_of_nested_calls_are_not_counted_or_cancelled() -> None:
    """This covers the host's own tasks, those that a tool waits for or cancels, and those of nested calls."""
    left, ours = LeftoverTasks(), LeftoverTasks()

    @tool(effect="none")
    async def inner() -> str:
        """Wait a little, in a task."""
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
        return "done"

    @tool(effect="none")
    def threaded(ctx: ToolContext) -> str:
        """Call another tool from a thread."""
        return ctx.call_sync("inner", {}).text

    @tool(effect="none")
    async def clean(ctx: ToolContext) -> str:
        """Wait for what it starts, or cancel it."""
        asyncio.create_task(asyncio.sleep(600)).cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.create_task(asyncio.sleep(600))
        texts = await asyncio.gather(ctx.call("inner", {}), ctx.call("threaded", {}))
        return " ".join(one.text for one in texts)

    async with Engine([inner, threaded, clean]) as engine:
        ours.start()
        result = await said(engine, RawCall(name="clean"))
        ours.start()
        assert (result.text, notes_of(result), engine.abandoned) == ("done done", [], 0)
        outcomes = await engine.call_many([RawCall(name="clean", id=str(n)) for n in range(3)])
        assert [notes_of(result_of(outcome)) for outcome in outcomes] == [[]] * 3
    assert not any(task.done() for task in ours.tasks), "the host's tasks were cancelled"
    ours.release.set()
    await asyncio.gather(*ours.tasks)
    assert left.tasks == []


async def test_a_host_task_factory_is_used_and_restored_after_close() -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        made.append(getattr(coro, "__name__", ""))
        return asyncio.Task(coro, loop=loop, **options)

    loop, left = asyncio.get_running_loop(), LeftoverTasks()
    loop.set_task_factory(factory)
    try:

        @tool(effect="none")
        async def leaves() -> str:
            """Leave a task."""
            left.start()
            return "done"

        async with Engine([leaves]) as one, Engine([leaves]) as other:
            await said(one, RawCall(name="leaves"))
            await said(other, RawCall(name="leaves"))
            assert (one.abandoned, other.abandoned) == (1, 1)
            await one.close()
            await said(other, RawCall(name="leaves"))
            assert other.abandoned == 2
        assert made.count("work") == 3
        assert loop.get_task_factory() is factory
    finally:
        loop.set_task_factory(None)


async def test_a_tool_that_starts_no_task_has_no_tracking_overhead() -> None:
    """A call enters no function of the modules that watch tasks."""

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    async with Engine([look]) as engine:
        for _ in range(3):
            await engine.call(RawCall(name="look", arguments="{}"))
        entered: list[str] = []

        def count(frame: FrameType, event: str, arg: object) -> None:
            if event == "call":
                entered.append(frame.f_code.co_filename)

        await _profiled(count, lambda: engine.call(RawCall(name="look", arguments="{}")))
    assert entered
    assert not [name for name in entered if name.endswith(("/started_tasks.py", "/abandoned_code.py"))]


async def _profiled(count: Callable[[FrameType, str, object], None], act: Callable[[], Any]) -> None:
    sys.setprofile(count)
    try:
        await act()
    finally:
        sys.setprofile(None)
