"""Engines whose event loop closed before they did: they can be closed from any thread or loop, and release their workers and leases."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path

import psutil
import pytest

from callgate import Answered, Engine, RawCall, Scope, SqliteJournal, ToolContext, tool
from callgate.calls import Outcome
from callgate.events import TERMINAL
from callgate.protocols import Execution, RunRequest
from tests.engine_calls import call
from tests.waiting import COMMAND_S, DEADLINE_S, HANGS_S, PATIENCE_S, LoopClock, let_pass, past_deadline, until

SCOPE = Scope(run="r")


@tool(effect="none", runner="process")
def state() -> dict[str, int]:
    """Return the process id."""
    return {"pid": os.getpid()}


@tool(runner="process")
def own_session(context: ToolContext) -> None:
    """Start a child in its own session, and hang."""
    subprocess.Popen(["setsid", "sleep", str(HANGS_S)])
    context.progress("begun")
    time.sleep(HANGS_S)


def from_another_loop(engine: Engine) -> None:
    asyncio.run(asyncio.wait_for(engine.close(), PATIENCE_S))


def from_plain_code(engine: Engine) -> None:
    engine.close_sync()


def from_a_loop_in_a_thread(engine: Engine) -> None:
    closing = threading.Thread(target=from_another_loop, args=(engine,))
    closing.start()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


CLOSES = pytest.mark.parametrize("close", [from_another_loop, from_plain_code, from_a_loop_in_a_thread])


async def by_asyncio(engine: Engine, raw: RawCall, scope: Scope = SCOPE) -> Outcome:
    return await engine.call(raw, scope)


def pid_of(outcome: Outcome) -> int:
    assert isinstance(outcome, Answered), outcome
    assert isinstance(outcome.result.structured, dict)
    return int(outcome.result.structured["pid"])


def ends_of(journal: SqliteJournal) -> Counter[str]:
    return Counter(event.call for event in journal.read() if event.kind in TERMINAL)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ends_eventually(pid: int) -> bool:
    """Wait until a killed process has ended, and return whether it has."""
    until = time.monotonic() + PATIENCE_S
    while not gone(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return gone(pid)


async def assert_run_lease_is_free(path: Path) -> None:
    """Check that another journal can acquire the lease."""
    journal = SqliteJournal(path)
    assert await asyncio.wait_for(journal.acquire_lease(SCOPE.run), PATIENCE_S)
    await journal.close()


@CLOSES
def test_closing_an_engine_after_its_loop_closed_ends_workers_and_releases_leases(tmp_path: Path, close: Callable[[Engine], None]) -> None:
    path = tmp_path / "journal.db"
    engine = Engine([state], journal=SqliteJournal(path))
    pid = pid_of(asyncio.run(by_asyncio(engine, call("state"))))
    assert not gone(pid)
    close(engine)
    assert gone(pid), "the worker process still runs"
    asyncio.run(assert_run_lease_is_free(path))
    close(engine)


@CLOSES
def test_calls_of_a_closed_loop_are_ended_and_recorded_when_the_engine_closes(tmp_path: Path, close: Callable[[Engine], None]) -> None:
    """The loop is closed while calls that were not cancelled run in a worker, a thread and a task."""
    path, release, told = tmp_path / "journal.db", threading.Event(), threading.Event()

    @tool
    def held(context: ToolContext) -> str:
        """Hold a thread."""
        context.signal.on_abort(told.set)
        context.progress("begun")
        release.wait(HANGS_S)
        return "late"

    @tool
    async def waits(context: ToolContext) -> None:
        """Wait."""
        context.progress("begun")
        await asyncio.Event().wait()

    others = psutil.Process().children(recursive=True)  # such as a database server of other tests
    engine = Engine([held, waits, own_session], journal=SqliteJournal(path))
    begun: list[object] = []
    engine.bus.subscribe(lambda topic, item: begun.append(item), "call.progress")
    loop = asyncio.new_event_loop()
    tasks: list[asyncio.Task[object]] = [
        loop.create_task(by_asyncio(engine, RawCall(name=name), Scope(run=name))) for name in ("held", "waits", "own_session")
    ]
    tasks.append(loop.create_task(engine.call_many([RawCall(name="waits")] * 2, SCOPE)))  # run one after the other

    async def until_begun() -> None:
        while len(begun) < 4:
            await asyncio.sleep(0.01)

    loop.run_until_complete(until_begun())
    processes = set(psutil.Process().children(recursive=True)) - set(others)
    assert len(processes) >= 2, "no worker process was started"
    loop.close()
    close(engine)
    assert all(ends_eventually(process.pid) for process in processes)
    assert told.is_set(), "the abort signal did not reach the tool in the thread"
    release.set()
    journal = SqliteJournal(path)
    assert sorted(ends_of(journal).values()) == [1] * 5
    asyncio.run(journal.close())
    asyncio.run(assert_run_lease_is_free(path))
    for task in {*tasks, *asyncio.all_tasks(loop)}:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_close_cut_off_by_the_end_of_its_loop_is_finished_by_the_next_close(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    engine = Engine([state], journal=SqliteJournal(path))

    async def leave() -> int:
        pid = pid_of(await by_asyncio(engine, call("state")))
        asyncio.get_running_loop().call_soon(asyncio.ensure_future, engine.close())
        await asyncio.sleep(0)
        return pid

    pid = asyncio.run(leave())
    engine.close_sync()
    assert gone(pid)
    asyncio.run(assert_run_lease_is_free(path))


def test_a_keyboard_interrupt_in_the_engines_own_loop_does_not_affect_later_calls(tmp_path: Path) -> None:
    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    class Leave:
        """A policy that raises `KeyboardInterrupt`."""

        never_waits = False

        async def decide(self, call: object) -> object:
            raise KeyboardInterrupt

    engine = Engine([look], policies=[Leave()], journal=SqliteJournal(tmp_path / "journal.db"))  # type: ignore[list-item]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            engine.call_sync(RawCall(name="look"))
    engine.close_sync()
    asyncio.run(assert_run_lease_is_free(tmp_path / "journal.db"))


class Stuck:
    """A custom runner whose `close` hangs and ignores the first cancel."""

    closing = False

    async def run(self, request: RunRequest) -> Execution:
        return Execution(status="returned", value="done")

    async def close(self) -> None:
        self.closing = True
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling() > 1:  # type: ignore[union-attr]
                    raise


class Broken(Stuck):
    """A custom runner whose `close` fails."""

    async def close(self) -> None:
        raise SystemExit(3)


async def test_leases_and_workers_are_released_when_a_runner_hangs_or_fails_on_close(tmp_path: Path) -> None:
    stuck = Stuck()
    engine = Engine([state], journal=SqliteJournal(tmp_path / "journal.db"), runners={"stuck": stuck, "broken": Broken()})
    pid = pid_of(await engine.call(call("state"), SCOPE))
    closing = asyncio.create_task(engine.close())
    await until(lambda: stuck.closing and gone(pid))
    let_pass(PATIENCE_S)
    await closing
    await assert_run_lease_is_free(tmp_path / "journal.db")


EXITS = """
import asyncio, sys
from callgate.events import Draft
from callgate import Engine, RawCall, Scope, SqliteJournal
from tests.test_closed_event_loops import state
engine = Engine([state], journal=SqliteJournal(sys.argv[1]))
async def main():
    print((await engine.call(RawCall(name="state"), Scope(run="r"))).result.structured["pid"], flush=True)
    engine.journal.append(Draft(kind="hook.failed", run="hooks", body=b"{}"))  # nobody waits for this one
asyncio.run(main())
"""


def test_program_exit_ends_workers_and_releases_leases_of_an_unclosed_engine(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    ran = subprocess.run([sys.executable, "-c", EXITS, str(path)], capture_output=True, text=True, timeout=COMMAND_S)
    assert ran.returncode == 0, ran.stderr
    _, alive = psutil.wait_procs([psutil.Process(int(ran.stdout))] if psutil.pid_exists(int(ran.stdout)) else [], PATIENCE_S)
    assert not alive
    asyncio.run(assert_run_lease_is_free(path))
    journal = SqliteJournal(path)
    assert journal.verify() is None
    kinds = [event.kind for event in journal.read()]
    assert (kinds.count("call.completed"), kinds.count("hook.failed")) == (1, 1)
    asyncio.run(journal.close())


def test_a_coroutine_that_a_thread_returns_after_its_loop_is_closed_is_closed() -> None:
    released, threads, returned = threading.Event(), list[threading.Thread](), list[Coroutine[object, object, None]]()

    async def never_awaited() -> None:
        pass

    @tool(runner="thread")
    def late() -> Coroutine[object, object, None]:
        """Return a coroutine when released."""
        threads.append(threading.current_thread())
        released.wait(HANGS_S)
        returned.append(never_awaited())
        return returned[0]

    async def abandon() -> None:
        async with Engine([late], timeout_s=DEADLINE_S, clock=LoopClock()) as engine:
            await past_deadline(engine.call(RawCall(name="late")), lambda: threads)

    asyncio.run(abandon())
    released.set()
    threads[0].join(PATIENCE_S)
    assert inspect.getcoroutinestate(returned[0]) == inspect.CORO_CLOSED
