"""A result that a hook withholds is stored nowhere, and one that a hook redacts is stored redacted. The tests read all stored files."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, MemoryJournal, RetryPolicy, Scope, SqliteCache, SqliteJournal, after_call, tool
from callgate.memory import Memory
from callgate.stage_types import Checked, ValidatedCall
from callgate.undo import UndoStore
from tests.engine_calls import bodies, call, kinds, said

SECRET = "hunter2-5f1c"


@tool(effect="none", cacheable=True, cache_scope="persistent")
async def small(path: str) -> str:
    """Look."""
    return f"the password of {path} is {SECRET}"


@tool(effect="none", cacheable=True, cache_scope="persistent")
async def shaped(path: str) -> dict[str, Any]:
    """Look."""
    return {"success": True, "data": {"password": SECRET}, "message": f"it is {SECRET}", "image_metadata": {"alt": SECRET}}


@tool(effect="none", cacheable=True, cache_scope="persistent")
async def large(path: str) -> list[str]:
    """Look."""
    return [f"{SECRET} {number}" for number in range(200_000)]


@tool(effect="none", retry=RetryPolicy(attempts=2, base_s=0.001))
async def fails(path: str) -> str:
    """Fail, quoting a secret."""
    raise ConnectionError(f"the password {SECRET} was refused")


@tool(effect="none", runner="thread")
def threaded(path: str) -> str:
    """Look."""
    return SECRET


TOOLS = [small, shaped, large, fails, threaded]


@after_call(kind="reject")
def keeps_back(call: ValidatedCall, result: Checked) -> str | None:
    return "it has a secret" if SECRET in f"{result.value} {result.error}" else None


@after_call(kind="transform")
def hides(call: ValidatedCall, result: Checked) -> Any:
    if result.status != "ok":
        return None
    if isinstance(result.value, str):
        return result.value.replace(SECRET, "[hidden]")
    return "[hidden]" if isinstance(result.value, list) else {"success": True, "data": "[hidden]"}


@after_call(kind="transform")
def breaks(call: ValidatedCall, result: Checked) -> Any:
    return int(str(result.value or result.error))


@after_call(priority=1)
def observer_that_breaks(call: ValidatedCall, result: Checked) -> None:
    raise ValueError(str(result.value or result.error)[:200])


def left_behind(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize(
    "hooks",
    [[keeps_back], [hides, keeps_back], [breaks], [observer_that_breaks, keeps_back]],
    ids=["withheld", "hidden", "broken", "a broken observer"],
)
async def test_a_result_withheld_or_redacted_by_hooks_is_in_no_file_or_log(
    hooks: list[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal, blobs, cache, memory, undo store and log are checked, with small, structured, large, failed and repeated results."""
    caplog.set_level(logging.DEBUG)
    workspace, kept = tmp_path / "workspace", tmp_path / "kept"
    kept.mkdir()
    workspace.mkdir()
    async with Engine(
        TOOLS,
        hooks=hooks,
        journal=SqliteJournal(kept / "journal.db"),
        persistent_cache=SqliteCache(kept / "cache.db"),
        memory=Memory(kept / "memory.db"),
        undo=UndoStore(kept / "undo"),
    ) as engine:
        scope = Scope(workspace=str(workspace), conversation="c")
        told = [await said(engine, call(one.name, path="a"), scope) for one in TOOLS * 2]
        assert SECRET.encode() not in left_behind(kept)
    assert SECRET.encode() not in left_behind(kept)
    assert all(SECRET not in repr(result) for result in told)
    assert SECRET not in caplog.text


async def test_a_result_redacted_by_a_hook_is_cached_redacted(tmp_path: Path) -> None:
    """The next engine also gets the redacted result from the cache, and its hooks run on it again."""
    runs: list[str] = []
    seen: list[str | None] = []

    @tool(effect="none", cacheable=True, cache_scope="persistent")
    async def look() -> str:
        """Look."""
        runs.append("")
        return SECRET

    @after_call(kind="transform")
    def hide(call: ValidatedCall, result: Checked) -> str:
        seen.append(result.cached)
        return str(result.value).replace(SECRET, "[hidden]")

    for _ in range(2):
        async with Engine([look], hooks=[hide], persistent_cache=SqliteCache(tmp_path / "cache.db")) as engine:
            result = await said(engine, call("look"))
            assert result.text == "[hidden]"
    assert (len(runs), seen, result.metadata.cached) == (1, [None, "persistent"], "persistent")


async def test_a_result_that_a_hook_changes_again_each_time_is_not_cached() -> None:
    """The tool runs again for each call. Once this is known, no further result is stored."""
    runs: list[str] = []
    hooked: list[str] = []

    @tool(effect="none", cacheable=True, cache_scope="session")
    async def look() -> str:
        """Look."""
        runs.append("")
        return "seen"

    @after_call(kind="transform")
    def louder(call: ValidatedCall, result: Checked) -> str:
        hooked.append("")
        return f"{result.value}!"

    async with Engine([look], hooks=[louder]) as engine:
        assert [(await said(engine, call("look"))).text for _ in range(4)] == ["seen!"] * 4
    assert (len(runs), len(hooked)) == (4, 5)


async def test_a_cached_result_is_deleted_when_a_hook_rejects_it(tmp_path: Path) -> None:
    """Later hooks do not get the deleted result, and neither does an engine without hooks."""
    path = tmp_path / "cache.db"

    @after_call(kind="reject")
    def now_secret(call: ValidatedCall, result: Checked) -> str:
        return "it is secret now"

    for one in (small, large):
        async with Engine([one], persistent_cache=SqliteCache(path)) as engine:
            assert SECRET in (await said(engine, call(one.name, path="a"))).text
        assert SECRET.encode() in left_behind(tmp_path)
        async with Engine([one], hooks=[now_secret], persistent_cache=SqliteCache(path)) as engine:
            assert (await said(engine, call(one.name, path="a"))).failure_class == "rejected_by_hook"
        assert SECRET.encode() not in left_behind(tmp_path)
    async with Engine([small], persistent_cache=SqliteCache(path)) as engine:
        assert (await said(engine, call("small", path="a"))).metadata.cached is None


async def test_an_engine_without_hooks_does_not_reuse_a_result_redacted_by_hooks(tmp_path: Path) -> None:
    for hooks, shown in (([hides], "[hidden]"), ([], SECRET), ([hides], "[hidden]")):
        async with Engine([small], hooks=hooks, persistent_cache=SqliteCache(tmp_path / "cache.db")) as engine:
            result = await said(engine, call("small", path="a"))
            assert result.text == f"the password of a is {shown}"
    assert result.metadata.cached == "persistent"


async def test_calls_that_share_an_execution_each_pass_the_hooks() -> None:
    """Hooks may treat the calls differently, and a call that joined does not wait for the hooks of the first."""
    gate, entered, runs = asyncio.Event(), asyncio.Event(), []

    @tool(effect="none", cacheable=True, cache_scope="session")
    async def look() -> str:
        """Look."""
        runs.append("")
        entered.set()
        await gate.wait()
        return SECRET

    @after_call(kind="reject")
    def not_for_b(call: ValidatedCall, result: Checked) -> str | None:
        return "not for b" if call.scope.conversation == "b" else None

    async with Engine([look], hooks=[not_for_b]) as engine:
        first = asyncio.create_task(said(engine, call("look"), Scope(conversation="a")))
        await entered.wait()
        second = asyncio.create_task(said(engine, call("look"), Scope(conversation="b")))
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        a, b = await first, await second
    assert (a.text, b.failure_class, len(runs)) == (SECRET, "rejected_by_hook", 1)


async def test_a_write_during_the_hooks_keeps_the_result_out_of_the_cache() -> None:
    """A value that was read before a write is never returned after it."""
    value = ["old"]

    @tool(effect="none", cacheable=True, cache_scope="session", reads="thing")
    async def look() -> str:
        """Look."""
        return value[0]

    @tool(effect="once", writes="thing")
    async def put() -> str:
        """Put."""
        value[0] = "new"
        return "done"

    hooked, goes_on = asyncio.Event(), asyncio.Event()

    @after_call("look")
    async def slow(call: ValidatedCall, result: Checked) -> None:
        hooked.set()
        await goes_on.wait()

    async with Engine([look, put], hooks=[slow]) as engine:
        first = asyncio.create_task(said(engine, call("look"), Scope(run="a")))
        await hooked.wait()
        await said(engine, call("put"), Scope(run="b"))
        goes_on.set()
        assert (await first).text == "old"
        assert (await said(engine, call("look"), Scope(run="a", turn=1))).text == "new"


async def test_a_stopped_call_records_nothing_that_hooks_would_have_withheld() -> None:
    started, gate = asyncio.Event(), asyncio.Event()
    journal = MemoryJournal()

    @tool(effect="none")
    async def look() -> str:
        """Fail once told to."""
        started.set()
        await gate.wait()
        raise ValueError(SECRET)

    async with Engine([look], hooks=[keeps_back], journal=journal) as engine:
        task = asyncio.create_task(engine.call(call("look"), Scope(conversation="c")))
        await started.wait()
        engine.control.stop("c")
        gate.set()
        await task
        assert "call.aborted" in kinds(engine)
        assert SECRET not in str(bodies(engine, "call.aborted"))


async def test_a_retried_failure_result_is_not_recorded_before_hooks_see_it() -> None:
    """No hook sees the result of an earlier attempt, so it is never recorded."""
    tries: list[str] = []

    @tool(effect="none", retry=RetryPolicy(attempts=3, base_s=0.001))
    async def look() -> dict[str, Any]:
        """Look."""
        tries.append("")
        return {"success": False, "error": f"rate limit for {SECRET}: try again"}

    async with Engine([look], hooks=[keeps_back]) as engine:
        assert (await said(engine, call("look"))).failure_class == "rejected_by_hook"
        record = b"".join(event.body for event in engine.journal.read())
        assert kinds(engine).count("call.attempt_failed") == len(tries) - 1 == 2
    assert SECRET.encode() not in record
