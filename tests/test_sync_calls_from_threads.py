"""`call_sync` in a thread, of an engine whose event loop runs in another one: in a tool, a hook, a policy, a thread of the host."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from callgate import Allow, Ask, Engine, Limits, RawCall, Scope, Suspended, ToolContext, UsageError, tool
from callgate.agent import Agent
from callgate.hooks import before_call
from callgate.protocols import Verdict
from callgate.stage_types import ValidatedCall
from callgate.testing import ScriptedModel
from tests.engine_calls import call, result_of, said
from tests.waiting import PATIENCE_S

engines: list[Engine] = []


@tool(effect="none")
def leaf(n: int) -> int:
    """Return the number."""
    return n


@tool
def asks(n: int, ctx: ToolContext) -> int:
    """Use the engine instead of the context."""
    result = result_of(engines[-1].call_sync(call("leaf", n=n), ctx.scope))
    return int(str(result.structured))


@tool(effect="none", parallel=1)
def deep(n: int, ctx: ToolContext) -> int:
    """Call itself, this many levels deep."""
    return n if n == 0 else 1 + int(str(result_of(engines[-1].call_sync(call("deep", n=n - 1), ctx.scope)).structured))


async def in_time(engine: Engine, raw: RawCall) -> str:
    engines.append(engine)
    return (await asyncio.wait_for(said(engine, raw), PATIENCE_S)).text


async def test_a_thread_tool_of_an_async_engine_can_call_the_engine() -> None:
    async with Engine([leaf, asks]) as engine:
        assert await in_time(engine, call("asks", n=7)) == "7"


def test_a_thread_tool_of_a_synchronous_engine_can_call_the_engine() -> None:
    engine = Engine([leaf, asks])
    engines.append(engine)
    assert result_of(engine.call_sync(call("asks", n=7))).text == "7"
    engine.close_sync()


@pytest.mark.parametrize("limits", [Limits(parallel_calls=1), Limits(parallel_threads=1)], ids=["slots", "threads"])
async def test_tools_that_wait_for_the_engine_hold_nothing_that_their_calls_need(limits: Limits) -> None:
    async with Engine([leaf, asks, deep], limits=limits) as engine:
        engines.append(engine)
        raws = [call("asks", n=n) for n in range(3)]
        results = await asyncio.wait_for(asyncio.gather(*[said(engine, raw, Scope(run=raw.id)) for raw in raws]), PATIENCE_S)
        assert [result.text for result in results] == ["0", "1", "2"]
        assert await in_time(engine, call("deep", n=5)) == "5"


async def test_hooks_and_policies_in_threads_can_call_the_engine() -> None:
    seen: list[str] = []

    def look(where: str) -> None:
        seen.append(where + result_of(engines[-1].call_sync(call("leaf", n=1), Scope(run="of the host"))).text)

    @before_call("asks")
    async def hook(call: ValidatedCall) -> None:
        await asyncio.to_thread(look, "hook ")

    class InThread:
        async def decide(self, call: ValidatedCall) -> Verdict:
            if call.name == "asks":
                await asyncio.to_thread(look, "policy ")
            return Allow()

    async with Engine([leaf, asks], hooks=[hook], policies=[InThread()]) as engine:
        assert await in_time(engine, call("asks", n=7)) == "7"
    assert sorted(seen) == ["hook 1", "policy 1"]


async def test_a_hook_on_the_event_loop_is_told_to_await_the_call() -> None:
    @before_call("leaf", kind="reject")
    def hook(call: ValidatedCall) -> str:
        engines[-1].call_sync(RawCall(name="leaf", arguments={"n": 1}))
        return ""

    async with Engine([leaf], hooks=[hook]) as engine:
        assert "Await the method without that ending instead" in await in_time(engine, call("leaf", n=7))


async def test_a_thread_of_the_host_can_call_approve_and_run_agents_on_an_async_engine() -> None:
    class AskFirst:
        async def decide(self, call: ValidatedCall) -> Verdict:
            return Ask(question="Do it?") if call.name == "asks" else Allow()

    async with Engine([leaf, asks], policies=[AskFirst()]) as engine:
        await in_time(engine, call("leaf", n=0))

        def in_thread() -> str:
            raw = call("asks", id="c", n=7)
            asked = engine.call_sync(raw)
            assert isinstance(asked, Suspended)
            engine.approve_sync(asked.approval_id, by="bob")
            agent = Agent(ScriptedModel(["Done."]), engine)
            said = agent.run_sync("Go on.").text
            agent.close_sync()
            return f"{result_of(engine.call_sync(raw)).structured} {said}"

        assert await asyncio.wait_for(asyncio.to_thread(in_thread), PATIENCE_S) == "7 Done."


async def test_an_event_loop_that_waits_for_the_calling_thread_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate._pipeline.sync_runner._BLOCKED_S", 2.0)
    async with Engine([leaf]) as engine:
        await in_time(engine, call("leaf", n=0))
        with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="it is blocked, perhaps because it waits for this thread"):
            pool.submit(engine.call_sync, call("leaf", n=1)).result(PATIENCE_S)  # blocks the event loop
        received = [event for event in engine.journal.read() if event.kind == "call.received"]
    assert len(received) == 1


def test_an_engine_whose_event_loop_has_ended_says_so() -> None:
    async def used() -> Engine:
        engine = Engine([leaf])
        await engine.call(call("leaf", n=0))
        return engine

    engine = asyncio.run(used())
    with pytest.raises(UsageError, match="belongs to an event loop that no longer runs"):
        engine.call_sync(call("leaf", n=1))
    engine.close_sync()


async def test_many_threads_can_call_at_once() -> None:
    async with Engine([leaf]) as engine:
        await in_time(engine, call("leaf", n=0))
        found: list[str] = []
        threads = [threading.Thread(target=lambda: found.append(result_of(engine.call_sync(call("leaf", n=1))).text)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join, PATIENCE_S)
    assert found == ["1"] * 20
