"""Tests of the abort signal of a turn: a kill fires it even after the call has ended, and never in another turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from callgate import AbortController, Engine, MemoryJournal, Scope, SqliteJournal, Tool, ToolContext, tool
from callgate._abort_signals import AbortSignal
from callgate.agent import Agent
from callgate.protocols import Journal
from tests.agent.scripted_model import Gate, Script, says
from tests.agent.scripted_model import call as model_calls
from tests.engine_calls import call

HERE = Scope(conversation="here", run="r")


@pytest.fixture(params=["memory", "disk"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    return MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")


class KeptSignals:
    """Tools that store the abort signals they receive."""

    def __init__(self) -> None:
        self.signals: list[AbortSignal] = []
        self.heard: list[str] = []

    def tools(self) -> list[Tool]:
        @tool(effect="none")
        async def look(ctx: ToolContext) -> str:
            """Register a listener that outlives the call."""
            self.keep(ctx.signal)
            return "seen"

        @tool(effect="none", runner="thread")
        def look_from_a_thread(ctx: ToolContext) -> str:
            """Do the same as `look`, in a thread."""
            self.keep(ctx.signal)
            return "seen"

        @tool(effect="once")
        async def act(ctx: ToolContext) -> str:
            """Do the same as `look`, with an effect."""
            self.keep(ctx.signal)
            return "done"

        @tool(effect="none")
        async def ask(ctx: ToolContext) -> str:
            """Call `look`."""
            return (await ctx.call("look", {})).text

        return [look, look_from_a_thread, act, ask]

    def keep(self, signal: AbortSignal) -> None:
        self.signals.append(signal)
        signal.on_abort(lambda: self.heard.append(signal.reason or ""))


async def one_call(engine: Engine, name: str) -> None:
    await engine.call(call(name), HERE)


async def a_message(engine: Engine, name: str) -> None:
    await engine.call_many([call(name), call(name)], HERE)


async def a_streamed_message(engine: Engine, name: str) -> None:
    emission = engine.emission(HERE)
    emission.add(call(name))
    await asyncio.sleep(0)
    await emission.seal()


PATHS: dict[str, Callable[[Engine, str], Awaitable[None]]] = {
    "one call": one_call,
    "a message": a_message,
    "a streamed message": a_streamed_message,
}
paths = pytest.mark.parametrize("make", PATHS.values(), ids=PATHS.keys())


@paths
@pytest.mark.parametrize("name", ["look", "look_from_a_thread", "act", "ask"])
async def test_a_kill_after_a_call_fires_the_signal_that_its_tool_received(
    name: str, make: Callable[[Engine, str], Awaitable[None]], journal: Journal
) -> None:
    kept = KeptSignals()
    async with Engine(kept.tools(), journal=journal) as engine:
        await make(engine, name)
        assert kept.signals
        engine.control.kill("elsewhere", "another turn")
        assert not any(signal.aborted for signal in kept.signals)
        waiting = asyncio.ensure_future(kept.signals[0].wait())
        await asyncio.sleep(0)
        engine.control.kill("here", "enough")
        assert [signal.reason for signal in kept.signals] == ["enough"] * len(kept.signals)
        assert kept.heard == ["enough"] * len(kept.signals)
        assert await waiting == "enough"


@paths
async def test_each_turn_has_its_own_abort_signal(make: Callable[[Engine, str], Awaitable[None]], journal: Journal) -> None:
    kept = KeptSignals()
    async with Engine(kept.tools(), journal=journal) as engine:
        await make(engine, "look")
        engine.control.end_turn("here")
        before = len(kept.signals)
        await make(engine, "look")
        engine.control.kill("here", "enough")
    assert [signal.aborted for signal in kept.signals] == [False] * before + [True] * before


async def test_a_kill_of_an_agent_turn_fires_the_signals_of_earlier_messages(journal: Journal) -> None:
    kept, gate = KeptSignals(), Gate()
    first = says(model_calls("look", {}, id="1"), model_calls("act", {}, id="2", position=1))
    async with Engine(kept.tools(), journal=journal) as engine, Agent(Script(first, [gate, *says("Done.")]), engine) as agent:
        running = asyncio.ensure_future(agent.run("Go.", conversation="here"))
        await gate.reached.wait()
        assert [signal.aborted for signal in kept.signals] == [False, False]
        engine.control.kill("here", "enough")
        await running
    assert kept.heard == ["enough", "enough"]


@paths
async def test_discarding_a_message_fires_the_signals_of_its_calls_only(
    make: Callable[[Engine, str], Awaitable[None]], journal: Journal
) -> None:
    """Discarding a message aborts the signals of that message's calls; the turn's own signal does not fire."""
    kept = KeptSignals()
    async with Engine(kept.tools(), journal=journal) as engine:
        await make(engine, "look")
        emission = engine.emission(HERE)
        emission.add(call("look"))
        for _ in range(5):
            await asyncio.sleep(0)
        await emission.discard("the connection was lost")
        assert [signal.aborted for signal in kept.signals] == [False] * (len(kept.signals) - 1) + [True]
        assert not engine.control.signal("here").aborted


class Counting(AbortSignal):
    """An abort signal that counts its listeners."""

    def __init__(self) -> None:
        super().__init__()
        self.listening: set[object] = set()

    def on_abort(self, listener: Callable[[], None]) -> Callable[[], object]:
        remove, place = super().on_abort(listener), object()
        self.listening.add(place)

        def taken_off() -> None:
            self.listening.discard(place)
            remove()

        return taken_off


async def test_ended_calls_leave_no_listeners_on_the_abort_signal(journal: Journal) -> None:
    """The signal of a turn or of a host can outlive many calls, so leftover listeners would accumulate."""

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        await asyncio.sleep(0)
        return "seen"

    signal = Counting()
    async with Engine([look], journal=journal) as engine:
        for _ in range(20):
            await engine.call(call("look"), HERE, signal=signal)
            await engine.call_many([call("look"), call("look")], HERE, signal=signal)
            emission = engine.emission(HERE, signal=signal)
            emission.add(call("look"))
            await emission.discard("not wanted")
    assert not signal.listening


def test_an_abort_listener_is_called_once_whichever_signal_fires() -> None:
    turn = AbortController()
    own = AbortSignal(turn.signal)
    heard: list[str | None] = []
    own.on_abort(lambda: heard.append(own.reason))
    remove = own.on_abort(lambda: heard.append("taken off"))
    remove()
    remove()
    own.fire("alone")
    turn.abort("all")
    assert (heard, own.reason, turn.signal.reason) == (["alone"], "alone", "all")
    late = AbortSignal(turn.signal)
    late.on_abort(lambda: heard.append(late.reason))
    late.fire("again")
    assert (heard[1:], late.reason) == (["all"], "all")
