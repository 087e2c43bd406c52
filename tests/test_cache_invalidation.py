"""Cache invalidation: a write drops cached reads of the same resource, and a read that overlaps a write is not cached."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from callgate import AbortController, Answered, Engine, Limits, Scope, Tool, ToolContext, tool
from tests.cacheable_tool import Count, counting
from tests.engine_calls import call, kinds, said
from tests.waiting import PATIENCE_S, until


class Files:
    """Two files, tools that read and write them, and a list of the reads. A read waits until `release` is set."""

    def __init__(self) -> None:
        self.texts = {"a": "old", "b": "old"}
        self.reads: list[str] = []
        self.release = asyncio.Event()

    def tools(self) -> list[Tool]:
        @tool(effect="none", cacheable=True, reads="file:{path}")
        async def read(path: str) -> str:
            """Read."""
            text = self.texts[path]
            self.reads.append(f"{text} {path}")
            await self.release.wait()
            return text

        @tool(effect="idempotent", writes="file:{path}")
        async def write(path: str) -> str:
            """Write."""
            self.texts[path] = "new"
            return "written"

        @tool
        async def overwrite(path: str) -> str:
            """Write, without a word of what is written: calls of other runs do not wait for it."""
            self.texts[path] = "new"
            return "written"

        return [read, write, overwrite]


@pytest.fixture
def files() -> Files:
    return Files()


async def test_a_write_invalidates_cached_reads_of_the_same_resource(files: Files) -> None:
    files.release.set()
    async with Engine(files.tools()) as engine:
        await said(engine, call("read", path="a"))
        await said(engine, call("read", path="b"))
        await said(engine, call("write", path="a"))
        assert (await said(engine, call("read", path="a"))).text == "new"
        await said(engine, call("read", path="b"))
    assert files.reads == ["old a", "old b", "new a"]


async def test_a_read_whose_resource_is_written_meanwhile_is_not_cached(files: Files) -> None:
    async with Engine(files.tools()) as engine:
        early = asyncio.create_task(said(engine, call("read", path="a")))
        await until(lambda: files.reads)
        await said(engine, call("overwrite", path="a"), Scope(run="another"))
        files.release.set()
        assert (await early).text == "old"
        assert (await said(engine, call("read", path="a"))).text == "new"


async def test_a_read_after_a_write_does_not_join_a_read_started_before_it(files: Files) -> None:
    async with Engine(files.tools()) as engine:
        early = [asyncio.create_task(said(engine, call("read", path="a"))) for _ in range(2)]
        await until(lambda: len(files.reads) == 1)
        await said(engine, call("overwrite", path="a"), Scope(run="another"))
        late = [asyncio.create_task(said(engine, call("read", path="a"))) for _ in range(2)]
        await until(lambda: len(files.reads) == 2)
        files.release.set()
        assert [(await one).text for one in early + late] == ["old", "old", "new", "new"]
        assert [(await one).metadata.joined for one in late] == [False, True]
    assert files.reads == ["old a", "new a"]


async def test_a_read_joins_a_running_read_despite_a_write_to_another_resource(files: Files) -> None:
    async with Engine(files.tools()) as engine:
        early = asyncio.create_task(said(engine, call("read", path="a")))
        await until(lambda: files.reads)
        await said(engine, call("write", path="b"))
        late = asyncio.create_task(said(engine, call("read", path="a")))
        await asyncio.sleep(0)
        files.release.set()
        await early
        assert (await late).metadata.joined
    assert files.reads == ["old a"]


@pytest.mark.parametrize(
    ("reads", "writes", "runs"),
    [("file:a", None, 2), (None, None, 1), ("file:a", (), 1), ("file:a", "file:b", 1), (lambda arguments, scope: 1 / 0, "file:b", 2)],
    ids=["may be written", "says nothing of what it reads", "writes nothing", "written elsewhere", "cannot tell what it reads"],
)
async def test_a_call_without_declared_writes_invalidates_results_with_declared_reads(reads: Any, writes: Any, runs: int) -> None:
    """A cached result with declared reads is dropped by every call that may write to them."""
    count = Count()

    @tool(writes=writes)
    async def act() -> str:
        """Act on the world."""
        return "done"

    async with Engine([counting(count, reads=reads, cache_scope="session"), act]) as engine:
        for name in ("look", "act", "look"):
            assert (await said(engine, call(name))).success
    assert count.runs == runs


async def test_a_read_during_a_running_write_is_neither_cached_nor_shared() -> None:
    """A tool that reads before and after its own write sees the new value."""
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


@pytest.mark.parametrize("how", ["thread", "coroutine"])
@pytest.mark.parametrize("ended_by", ["kill", "cancel"])
async def test_resources_of_an_abandoned_write_are_not_cached_until_its_code_ends(how: str, ended_by: str) -> None:
    """A killed or cancelled call ends at once, but code that cannot be stopped may write later."""
    box, begun, go = {"value": 1}, threading.Event(), threading.Event()

    def put() -> str:
        """Put."""
        begun.set()
        go.wait(PATIENCE_S)
        box["value"] += 1
        return "put"

    async def put_and_stay() -> str:
        """Put, and ignore cancellation."""
        begun.set()
        while not go.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        box["value"] += 1
        return "put"

    @tool(effect="none", cacheable=True, cache_scope="session", reads="box:")
    async def look() -> int:
        """Look."""
        return box["value"]

    writer = tool(name="put", effect="idempotent", writes="box:")(put if how == "thread" else put_and_stay)
    controller = AbortController()
    async with Engine([look, writer], limits=Limits(grace_s=0.01)) as engine:
        await said(engine, call("look"))
        writing = asyncio.create_task(engine.call(call("put"), signal=controller.signal))
        await until(begun.is_set)
        controller.abort("enough") if ended_by == "kill" else writing.cancel()
        with suppress(asyncio.CancelledError):
            assert isinstance(await writing, Answered)
        before = [await said(engine, call("look")) for _ in range(2)]
        go.set()
        await until(lambda: "call.late" in kinds(engine))
        after = [await said(engine, call("look")) for _ in range(2)]
    assert [(one.structured, one.metadata.cached) for one in before] == [(1, None), (1, None)]
    assert [(one.structured, one.metadata.cached) for one in after] == [(2, None), (2, "session")]
