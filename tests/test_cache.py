"""Cached results: for the tick, the process or the file; never of a denied call, never shared, never stale."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callgate import Deny, Engine, Scope, TableCache, ToolContext, after_call, tool
from callgate._cache import MemoryCache
from callgate.protocols import Allow, CacheStore, Verdict
from callgate.route import Checked, ValidatedCall
from callgate.testing import ManualClock
from tests.door import bodies, call, kinds, said
from tests.patience import PATIENCE_S


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0)


class Count:
    def __init__(self) -> None:
        self.runs = 0


def counting(count: Count, **settings: Any) -> Any:
    @tool(name="look", effect="none", cacheable=True, **settings)
    async def look(at: str = "door") -> dict[str, Any]:
        """Look."""
        count.runs += 1
        return {"seen": at, "run": count.runs}

    return look


async def test_a_hit_skips_the_run_and_says_so() -> None:
    count = Count()
    async with Engine([counting(count)]) as engine:
        first = await said(engine, call("look"))
        second = await said(engine, call("look"))
        assert kinds(engine, second.uid) == ["call.received", "call.verdict", "call.completed"]
        assert engine.activity_since_wake == 1
    assert (first.metadata.cached, second.metadata.cached) == (None, "tick")
    assert (first.text, second.metadata.attempts, count.runs) == (second.text, 0, 1)


async def test_without_the_flag_nothing_is_cached() -> None:
    runs = []

    @tool(effect="none")
    async def look() -> int:
        """Look."""
        runs.append(1)
        return len(runs)

    async with Engine([look]) as engine:
        await said(engine, call("look"))
        await said(engine, call("look"))
    assert len(runs) == 2


async def test_a_tick_result_lasts_as_long_as_its_tick() -> None:
    count = Count()
    async with Engine([counting(count)]) as engine:
        for turn in (1, 1, 2):
            await said(engine, call("look"), Scope(turn=turn))
    assert count.runs == 2


async def test_a_session_result_lasts_as_long_as_the_process() -> None:
    count = Count()
    async with Engine([counting(count, cache_scope="session")]) as engine:
        for turn in (1, 2):
            await said(engine, call("look"), Scope(turn=turn, conversation=str(turn)))
    assert count.runs == 1
    async with Engine([counting(count, cache_scope="session")]) as engine:
        await said(engine, call("look"))
    assert count.runs == 2


async def test_a_persistent_result_outlives_the_engine(tmp_path: Path) -> None:
    count = Count()
    for _ in range(2):
        async with Engine([counting(count, cache_scope="persistent")], persistent_cache=TableCache(tmp_path / "cache.db")) as engine:
            assert (await said(engine, call("look"))).structured == {"seen": "door", "run": 1}
    assert count.runs == 1


@pytest.mark.parametrize(
    "other",
    [Scope(principal="eve"), Scope(actor="eve"), Scope(workspace="/elsewhere")],
    ids=["principal", "actor", "workspace"],
)
async def test_a_result_is_for_its_principal_actor_and_workspace_only(other: Scope) -> None:
    count = Count()
    async with Engine([counting(count, cache_scope="session")]) as engine:
        await said(engine, call("look"))
        assert (await said(engine, call("look"), other)).metadata.cached is None


async def test_other_arguments_are_another_result_and_key_order_is_not() -> None:
    runs = []

    @tool(effect="none", cacheable=True)
    async def pair(a: int, b: int) -> int:
        """Pair."""
        runs.append((a, b))
        return a - b

    async with Engine([pair]) as engine:
        await said(engine, call("pair", a=1, b=2))
        await said(engine, call("pair", b=2, a=1))
        await said(engine, call("pair", a=2, b=1))
    assert runs == [(1, 2), (2, 1)]


async def test_a_result_expires() -> None:
    count, clock = Count(), ManualClock()
    async with Engine([counting(count, cache_scope="session", cache_ttl=10)], clock=clock) as engine:
        await said(engine, call("look"))
        clock.advance(9.9)
        await said(engine, call("look"))
        assert count.runs == 1
        clock.advance(0.2)
        await said(engine, call("look"))
    assert count.runs == 2


async def test_failures_are_not_cached() -> None:
    runs = []

    @tool(effect="none", cacheable=True)
    async def look() -> str:
        """Look."""
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("dark")
        return "seen"

    async with Engine([look]) as engine:
        assert not (await said(engine, call("look"))).success
        assert (await said(engine, call("look"))).success


async def test_a_denied_call_is_never_answered_from_the_cache() -> None:
    class Fickle:
        open = True

        async def decide(self, call: ValidatedCall) -> Verdict:
            return Allow() if self.open else Deny(reason="closed")

    policy, count = Fickle(), Count()
    async with Engine([counting(count)], policies=[policy]) as engine:
        await said(engine, call("look"))
        policy.open = False
        assert (await said(engine, call("look"))).failure_class == "denied"


async def test_identical_calls_in_flight_share_one_run() -> None:
    started, release, runs = asyncio.Event(), asyncio.Event(), []

    @tool(effect="none", cacheable=True)
    async def look() -> str:
        """Look."""
        runs.append(1)
        started.set()
        await release.wait()
        return "seen"

    async with Engine([look]) as engine:
        first = asyncio.create_task(said(engine, call("look")))
        await started.wait()
        second = asyncio.create_task(said(engine, call("look")))
        await asyncio.sleep(0)
        release.set()
        results = [await first, await second]
    assert [result.metadata.joined for result in results] == [False, True]
    assert len(runs) == 1


async def test_whoever_shares_a_failed_run_runs_itself() -> None:
    started, release, runs = asyncio.Event(), asyncio.Event(), []

    @tool(effect="none", cacheable=True)
    async def look() -> str:
        """Look."""
        runs.append(1)
        started.set()
        await release.wait()
        if len(runs) == 1:
            raise ValueError("dark")
        return "seen"

    async with Engine([look]) as engine:
        first = asyncio.create_task(said(engine, call("look")))
        await started.wait()
        second = asyncio.create_task(said(engine, call("look")))
        await asyncio.sleep(0)
        release.set()
        assert [(await first).success, (await second).success] == [False, True]


async def test_a_write_drops_what_was_read_from_the_same_resource() -> None:
    reads, files = [], {"a": "old", "b": "old"}

    @tool(effect="none", cacheable=True, reads="file:{path}")
    async def read(path: str) -> str:
        """Read."""
        reads.append(path)
        return files[path]

    @tool(effect="idempotent", writes="file:{path}")
    async def write(path: str, text: str) -> str:
        """Write."""
        files[path] = text
        return "written"

    async with Engine([read, write]) as engine:
        await said(engine, call("read", path="a"))
        await said(engine, call("read", path="b"))
        await said(engine, call("write", path="a", text="new"))
        assert (await said(engine, call("read", path="a"))).text == "new"
        await said(engine, call("read", path="b"))
    assert reads == ["a", "b", "a"]


async def test_a_read_that_a_write_overtook_is_not_kept() -> None:
    started, release = asyncio.Event(), asyncio.Event()
    files = {"a": "old"}

    @tool(effect="none", cacheable=True, reads="file:{path}")
    async def read(path: str) -> str:
        """Read."""
        text = files[path]
        started.set()
        await release.wait()
        return text

    @tool(effect="idempotent", writes="file:{path}")
    async def write(path: str) -> str:
        """Write."""
        files[path] = "new"
        return "written"

    async with Engine([read, write]) as engine:
        early = asyncio.create_task(said(engine, call("read", path="a")))
        await started.wait()
        await said(engine, call("write", path="a"))
        release.set()
        assert (await early).text == "old"
        assert (await said(engine, call("read", path="a"))).text == "new"


async def test_who_reads_after_a_write_never_joins_a_read_from_before_it() -> None:
    release, files, reads = asyncio.Event(), {"a": "old"}, list[str]()

    @tool(effect="none", cacheable=True, reads="file:{path}")
    async def read(path: str) -> str:
        """Read."""
        text = files[path]
        reads.append(text)
        await release.wait()
        return text

    @tool(effect="idempotent", writes="file:{path}")
    async def write(path: str) -> str:
        """Write."""
        files[path] = "new"
        return "written"

    async with Engine([read, write]) as engine:
        early = [asyncio.create_task(said(engine, call("read", path="a"))) for _ in range(2)]
        await until(lambda: len(reads) == 1)
        await said(engine, call("write", path="a"))
        late = [asyncio.create_task(said(engine, call("read", path="a"))) for _ in range(2)]
        await until(lambda: len(reads) == 2)
        release.set()
        assert [(await one).text for one in early + late] == ["old", "old", "new", "new"]
        assert [(await one).metadata.joined for one in late] == [False, True]
    assert reads == ["old", "new"]


async def test_a_write_elsewhere_leaves_shared_runs_shared() -> None:
    started, release, reads = asyncio.Event(), asyncio.Event(), list[str]()

    @tool(effect="none", cacheable=True, reads="file:{path}")
    async def read(path: str) -> str:
        """Read."""
        reads.append(path)
        started.set()
        await release.wait()
        return path

    @tool(effect="idempotent", writes="file:{path}")
    async def write(path: str) -> str:
        """Write."""
        return "written"

    async with Engine([read, write]) as engine:
        early = asyncio.create_task(said(engine, call("read", path="a")))
        await started.wait()
        await said(engine, call("write", path="b"))
        late = asyncio.create_task(said(engine, call("read", path="a")))
        await asyncio.sleep(0)
        release.set()
        await early
        assert (await late).metadata.joined
    assert reads == ["a"]


async def test_what_a_hook_does_to_one_result_nobody_else_sees() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @tool(effect="none", cacheable=True)
    async def look() -> dict[str, Any]:
        """Look."""
        started.set()
        await release.wait()
        return {"seen": []}

    @after_call()
    def scribble(call: ValidatedCall, result: Checked) -> None:
        result.value["seen"].append("hook")  # type: ignore[index]

    async with Engine([look], hooks=[scribble]) as engine:
        tasks = [asyncio.create_task(said(engine, call("look")))]
        await started.wait()
        tasks += [asyncio.create_task(said(engine, call("look"))) for _ in range(3)]
        await asyncio.sleep(0)
        release.set()
        results = [await task for task in tasks]
        results.append(await said(engine, call("look")))
    assert [result.metadata.joined for result in results] == [False, True, True, True, False]
    assert [result.structured for result in results] == [{"seen": ["hook"]}] * 5


async def test_copies_go_in_and_copies_come_out() -> None:
    kept: list[dict[str, Any]] = []

    @tool(effect="none", cacheable=True)
    async def look() -> dict[str, Any]:
        """Look."""
        kept.append({"list": [1]})
        return kept[0]

    async with Engine([look]) as engine:
        await said(engine, call("look"))
        kept[0]["list"].append(2)
        second = await said(engine, call("look"))
        second.structured["list"].append(3)  # type: ignore[index]
        assert (await said(engine, call("look"))).structured == {"list": [1]}


async def test_a_hit_passes_the_hooks_like_any_result() -> None:
    seen = []

    @after_call()
    def watch(call: ValidatedCall, result: Checked) -> None:
        seen.append(result.cached)

    async with Engine([counting(Count())], hooks=[watch]) as engine:
        await said(engine, call("look"))
        await said(engine, call("look"))
        assert len(bodies(engine, "call.completed")) == 2
    assert seen == [None, "tick"]


stores: list[Callable[[Path], CacheStore]] = [lambda path: MemoryCache(), lambda path: TableCache(path / "cache.db")]


@pytest.mark.parametrize("make", stores, ids=["memory", "table"])
def test_every_store_keeps_expires_and_drops(make: Callable[[Path], CacheStore], tmp_path: Path) -> None:
    """The contract of `CacheStore`."""
    store = make(tmp_path)
    store.put("k", b"v", group="g", expires_ns=100, reads=frozenset({"file:a/b"}))
    assert store.get("k", 99) == b"v"
    assert store.get("k", 100) is None
    assert store.get("absent", 0) is None
    store.put("k", b"1", group="g", expires_ns=None, reads=frozenset({"file:a/b"}))
    store.put("k", b"2", group="g", expires_ns=None, reads=frozenset({"file:a/b"}))
    assert store.get("k", 0) == b"2"
    assert store.drop_written(frozenset({"file:c"})) == 0
    assert store.drop_written(frozenset({"file:a"})) == 1
    assert store.get("k", 0) is None
    store.put("k", b"3", group="g", expires_ns=None, reads=frozenset())
    store.drop_group("other")
    assert store.get("k", 0) == b"3"
    store.drop_group("g")
    assert store.get("k", 0) is None
    store.close()


def test_memory_is_bounded_and_the_least_used_goes_first() -> None:
    store = MemoryCache(most_bytes=10)
    for key in "abc":
        store.put(key, b"xxxx", group="", expires_ns=None, reads=frozenset())
    assert [store.get(key, 0) is not None for key in "abc"] == [False, True, True]
    store.put("large", b"x" * 11, group="", expires_ns=None, reads=frozenset())
    assert store.get("large", 0) is None


class Failing:
    """Fails or hangs as often as it is told to, then sees."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.runs = 0
        self.release = asyncio.Event()

    def tool(self, **settings: Any) -> Any:
        @tool(name="look", effect="none", cacheable=True, cache_scope="session", **settings)
        async def look() -> str:
            """Look."""
            self.runs += 1
            run = self.runs
            await self.release.wait()
            await asyncio.sleep(0)
            if run <= self.failures:
                raise ValueError(f"dark {run}")
            return f"seen {run}"

        return look


@pytest.mark.parametrize("failures", [1, 2])
async def test_of_those_who_waited_for_a_run_that_failed_one_runs_again_for_all(failures: int) -> None:
    """A run that began after they asked is as good as their own, however it ends."""
    failing = Failing(failures)
    async with Engine([failing.tool()]) as engine:
        calls = [asyncio.create_task(said(engine, call("look"))) for _ in range(6)]
        await until(lambda: failing.runs == 1)
        failing.release.set()
        first, *others = [await one for one in calls]
    assert (failing.runs, first.success, first.metadata.joined) == (2, False, False)
    assert {one.success for one in others} == {failures == 1}
    assert [one.metadata.joined for one in others].count(False) == 1
    assert all(one.metadata.untrusted and ("2" in one.text) for one in others)


async def test_a_kill_of_the_one_who_runs_is_nobody_elses() -> None:
    failing = Failing(0)
    async with Engine([failing.tool()]) as engine:
        leader = asyncio.create_task(engine.call(call("look"), Scope(conversation="killed")))
        await until(lambda: failing.runs == 1)
        others = [asyncio.create_task(said(engine, call("look"))) for _ in range(3)]
        await asyncio.sleep(0)
        engine.control.kill("killed")
        await leader
        await until(lambda: failing.runs == 2)
        failing.release.set()
        assert [(await one).text for one in others] == ["seen 2"] * 3
    assert failing.runs == 2


def circling() -> list[Any]:
    @tool(effect="none", cacheable=True)
    async def mirror(ctx: ToolContext, of: str) -> Any:
        """Call the tool that is named, with the name of this one."""
        await asyncio.sleep(0)
        return (await ctx.call(of, {"of": "mirror"})).code

    @tool(effect="none", cacheable=True)
    async def window(ctx: ToolContext, of: str) -> Any:
        """The same."""
        await asyncio.sleep(0)
        return (await ctx.call(of, {"of": "window"})).structured

    return [mirror, window]


async def test_a_cached_call_that_would_wait_for_itself_is_refused_at_once() -> None:
    """Nothing waits for what cannot come before it."""
    async with asyncio.timeout(PATIENCE_S), Engine(circling()) as engine:
        result = await said(engine, call("mirror", of="mirror"))
        assert result.structured == "waits_for_itself"
        result = await said(engine, call("window", of="mirror"))
        assert result.structured == "waits_for_itself"


async def test_two_calls_that_wait_for_each_other_do_not() -> None:
    """Whoever closes the circle is told, whatever came first."""

    @tool(effect="none", cacheable=True)
    async def half(ctx: ToolContext, of: str, other: str) -> Any:
        """Needs the other half."""
        met.append(of)
        await until(lambda: len(met) == 2)
        result = await ctx.call("half", {"of": other, "other": of})
        return [result.code, result.structured]

    met: list[str] = []
    async with asyncio.timeout(PATIENCE_S), Engine([half]) as engine:
        one, two = await asyncio.gather(said(engine, call("half", of="a", other="b")), said(engine, call("half", of="b", other="a")))
    assert "waits_for_itself" in f"{one.structured} {two.structured}"
    assert (one.success, two.success, sorted(met)) == (True, True, ["a", "b"])


@pytest.mark.parametrize(
    ("reads", "writes", "runs"),
    [("file:a", None, 2), (None, None, 1), ("file:a", (), 1), ("file:a", "file:b", 1), (lambda arguments, scope: 1 / 0, "file:b", 2)],
    ids=["may be written", "says nothing of what it reads", "writes nothing", "written elsewhere", "cannot tell what it reads"],
)
async def test_a_call_that_does_not_say_what_it_writes_may_write_what_others_say_they_read(reads: Any, writes: Any, runs: int) -> None:
    """What says what it reads is told of every write that may meet it."""
    count = Count()

    @tool(writes=writes)
    async def act() -> str:
        """Act on the world."""
        return "done"

    async with Engine([counting(count, reads=reads, cache_scope="session"), act]) as engine:
        for name in ("look", "act", "look"):
            assert (await said(engine, call(name))).success
    assert count.runs == runs


async def test_what_is_being_written_is_neither_kept_nor_shared() -> None:
    """A tool that reads before and after its own write sees it."""
    files = {"a": "old"}

    @tool(effect="none", cacheable=True, reads="file:{path}")
    async def read(path: str) -> str:
        """Read."""
        return files[path]

    @tool
    async def edit(ctx: ToolContext, path: str) -> list[str]:
        """Read, write, read."""
        before = await ctx.call("read", {"path": path})
        files[path] = "new"
        return [before.text, (await ctx.call("read", {"path": path})).text]

    async with Engine([read, edit]) as engine:
        await said(engine, call("read", path="a"))
        assert (await said(engine, call("edit", path="a"))).structured == ["old", "new"]
        assert (await said(engine, call("read", path="a"))).metadata.cached is None


@pytest.mark.parametrize("broken", ["get", "put", "drop_written", "garbage"])
async def test_a_store_that_fails_costs_a_run_and_never_a_result(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it could not forget, it is not asked for again."""

    def fails(*_: object, **__: object) -> Any:
        if broken == "garbage":
            return b"{"
        raise OSError("the disk is gone")

    store, count, world = MemoryCache(), Count(), ["old"]
    monkeypatch.setattr(store, "get" if broken == "garbage" else broken, fails)

    @tool(name="look", effect="none", cacheable=True, cache_scope="persistent", reads="world:")
    async def look() -> str:
        """Look."""
        count.runs += 1
        return world[0]

    @tool(effect="idempotent", writes="world:")
    async def change() -> str:
        """Change the world."""
        world[0] = "new"
        return "changed"

    async with Engine([look, change], persistent_cache=store) as engine:
        assert [(await said(engine, call(name))).text for name in ("look", "look", "change", "look")] == ["old", "old", "changed", "new"]
