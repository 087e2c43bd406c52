"""Random answers of the model and random interference: runs end, conversations stay valid, effects are counted, no state remains.

Two agents share an engine and two conversations. Their model is a provider on the loopback interface that plays any script, also
truncated and broken ones, while stops, kills, follow-ups, answers and resumes arrive at any moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from callgate import Engine, tool
from callgate.agent import Agent, Budget, RunResult, Settings
from callgate.agent.history_repair import repair_history
from callgate.agent.recorded_run import load_run
from callgate.agent.repetition import StuckLimits
from callgate.errors import UsageError
from callgate.loop_decision import LoopRules
from callgate.models.http_transport import Retries
from callgate.models.model_events import ModelEvent
from callgate.models.model_protocol import Model, StreamingContext
from callgate.models.providers import model
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.protocols import Allow, Ask, Deny, Verdict
from callgate.stage_types import ValidatedCall
from callgate.testing import Call, Drop, End, Piece, ScriptedServer
from tests.waiting import PATIENCE_S

CONVERSATIONS = ("c", "d")


class Judge:
    """A policy that allows, denies or asks, as the argument `judge` of a call says."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        match call.arguments.get("judge"):
            case "ask":
                return Ask(question="May it?")
            case "deny":
                return Deny(reason="not this one")
        return Allow()


class Alone:
    """A model that detects two concurrent passes of one conversation."""

    native_tools = True

    def __init__(self, inner: Model, broken: list[str]) -> None:
        self.provider, self.name = inner.provider, inner.name
        self._inner = inner
        self._running: Counter[str] = Counter()
        self._broken = broken

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        self._running[context.conversation] += 1
        if self._running[context.conversation] > 1:
            self._broken.append(f"two passes of {context.conversation} at once")
        try:
            async for event in self._inner.stream(request, context):
                yield event
        finally:
            self._running[context.conversation] -= 1


class World:
    """Two agents on one engine, their tools, and all runs that were started."""

    def __init__(self, url: str) -> None:
        self.broken: list[str] = []
        self.paid: Counter[str] = Counter()
        self.hanging = asyncio.Event()
        self.engine = Engine(self.tools(), policies=[Judge()])
        self.http = model("openai-compatible:any", base_url=url, retries=Retries(max_retries=0))
        one = Alone(self.http, self.broken)
        exits = [ToolSpec(name="done")]
        rules = LoopRules(errors_in_a_row=3)
        limits = StuckLimits(hint=2, refuse=3, stop=4)
        self.agents = [
            Agent(one, self.engine, exit_tools=exits, stuck=limits, settings=Settings(rules=rules, empty_retries=1, empty_retry_s=0.0)),
            Agent(
                one,
                self.engine,
                exit_tools=exits,
                preset="worker",
                settings=Settings(budget=Budget(iterations=2), rules=LoopRules(failures="strict")),
            ),
        ]
        self.runs: list[asyncio.Task[RunResult]] = []

    def tools(self) -> list[Any]:
        world = self

        @tool(effect="once")
        async def pay(to: str = "ann", judge: str = "") -> str:
            """Pay somebody."""
            world.paid[to] += 1
            return f"paid {to}"

        @tool(effect="none")
        async def look(what: str = "a") -> str:
            """Look at something."""
            await asyncio.sleep(0)
            return f"{what} is fine"

        @tool(effect="none", retryable=False)
        async def fail() -> str:
            """Fail."""
            raise ValueError("broken")

        @tool(effect="idempotent", retryable=False)
        async def hang() -> str:
            """Wait forever."""
            await asyncio.Event().wait()
            return "never"

        @tool(effect="once")
        async def nest(conversation: str = "c") -> str:
            """Ask an agent in some conversation."""
            return (await world.agents[0].run("Nested.", conversation=conversation)).text

        return [pay, look, fail, hang, nest]

    def start(self, work: Any) -> None:
        self.runs.append(asyncio.ensure_future(work))

    async def act(self, act: tuple[str, int, int]) -> None:
        what, which, patience = act
        conversation, agent = CONVERSATIONS[which % 2], self.agents[(which // 2) % 2]
        match what:
            case "run":
                self.start(agent.run("Go.", conversation=conversation))
            case "reflect":
                self.start(agent.run("Think.", conversation=conversation, reflect=True))
            case "follow_up":
                self.start(agent.follow_up("And?", conversation=conversation))
            case "stop":
                agent.stop(conversation)
            case "kill":
                agent.kill(conversation)
            case "cancel" if self.runs:
                self.runs[which % len(self.runs)].cancel()
            case "answer":
                await self.answer(allow=which % 2 == 0)
            case "resume":
                self.resume(agent, by_name=which % 2 == 0)
        for _ in range(patience):
            await asyncio.sleep(0.0005)

    def waiting(self) -> list[RunResult]:
        ended = [run for run in self.runs if run.done() and not run.cancelled() and run.exception() is None]
        return [run.result() for run in ended if run.result().status == "waiting"]

    async def answer(self, *, allow: bool) -> None:
        for result in self.waiting():
            for approval in result.pending.approvals if result.pending is not None else ():
                with suppress(UsageError):
                    await self.engine.answer(approval.approval_id, allow=allow)

    def resume(self, agent: Agent, *, by_name: bool) -> None:
        for result in self.waiting():
            self.start(agent.resume(result.run if by_name else result))

    async def ended(self) -> list[RunResult]:
        """Return the results of all runs once they have ended; kill those that do not end by themselves."""
        async with asyncio.timeout(PATIENCE_S):
            while not all(run.done() for run in self.runs):
                await asyncio.sleep(0.002)
                for conversation in CONVERSATIONS:
                    self.engine.control.kill(conversation)
        kept = [run for run in self.runs if not run.cancelled()]
        self.broken += [
            repr(run.exception()) for run in kept if run.exception() is not None and not isinstance(run.exception(), UsageError)
        ]
        return [run.result() for run in kept if run.exception() is None]


CALLS = st.one_of(
    st.builds(
        lambda to, judge: Call("pay", {"to": to, "judge": judge}), st.sampled_from("ab"), st.sampled_from(["", "ask", "ask", "deny"])
    ),
    st.builds(lambda what: Call("look", {"what": what}), st.sampled_from("ab")),
    st.builds(lambda conversation: Call("nest", {"conversation": conversation}), st.sampled_from(CONVERSATIONS)),
    st.sampled_from(
        [
            Call("fail"),
            Call("hang"),
            Call("done", {"how": "well"}),
            Call("Done"),
            Call("wat"),
            Call("look", '{"what": "a'),
            Call("look", "[]"),
            Call("", "{}"),
        ]
    ),
)
TURNS = st.lists(
    st.lists(st.one_of(CALLS, CALLS, st.sampled_from(["Hm. ", "", Drop(), End("length"), End("stop")])), max_size=4), max_size=8
)
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["run", "run", "run", "reflect", "follow_up", "stop", "kill", "cancel", "answer", "answer", "resume", "resume"]),
        st.integers(0, 7),
        st.integers(0, 12),
    ),
    min_size=2,
    max_size=10,
)


def check_requests(server: ScriptedServer) -> None:
    """Assert that in every request each call has a unique id and exactly one result, directly after its message."""
    for received in server.requests:
        messages: Any = received.body_json.get("messages", [])
        seen: set[str] = set()
        open_ids: list[str] = []
        for message in messages:
            if message["role"] == "tool":
                assert message["tool_call_id"] == open_ids.pop(0)
                continue
            assert open_ids == []
            open_ids = [call["id"] for call in message.get("tool_calls") or ()]
            assert seen.isdisjoint(open_ids)
            seen.update(open_ids)
        assert open_ids == []


def check_record(world: World, result: RunResult) -> None:
    """Assert that the journal restores the conversation as the run ended it."""
    events = list(world.engine.journal.read(run=result.run))
    if not events:
        return  # the run did not start
    recalled = load_run(world.engine.journal, world.engine.blobs, result.run)
    if recalled.last == result.recorded:  # the run started, and was not resumed since
        assert (recalled.ended, recalled.history.messages) == (result.turn_status, list(result.messages))


def check_nothing_is_left(world: World) -> None:
    control = world.engine.control
    assert (control.stops, control._passes, control._follow_ups, control._errors) == ({}, {}, {}, {})
    assert world.engine.conversations._queues == {}
    assert not world.engine._parts.runs._leases._work


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([[Call("nest", {"conversation": "c"})]], [("run", 1, 4), ("stop", 1, 2)])
@given(TURNS, ACTS)
def test_runs_end_with_valid_conversations_under_any_interleaving(turns: list[list[Piece]], acts: list[tuple[str, int, int]]) -> None:
    """Requirements A11, A12, A46, B21."""

    async def play() -> None:
        script = iter(turns)
        async with ScriptedServer(lambda _: next(script, ["Done."])) as server:
            world = World(server.url)
            for act in acts:
                await world.act(act)
            results = await world.ended()
            for conversation in CONVERSATIONS:
                world.engine.control.end_turn(conversation)
            check_nothing_is_left(world)
            starts = [event for event in world.engine.journal.read() if event.kind == "call.started" and b'"tool":"pay"' in event.body]
            assert sum(world.paid.values()) == len(starts) == len({event.call for event in starts})
            for result in results:
                assert repair_history(result.messages) == (list(result.messages), [])
                check_record(world, result)
            check_requests(server)
            await world.engine.close()
            await world.http.close()
            assert world.broken == []

    asyncio.run(play())
