"""Models that lie, hosts that change their mind at the worst moment: what the loop promises holds all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import Any

import pytest

from callgate import Scope, Tool, ToolContext, tool
from callgate.agent import Agent, AgentEvent, Budget, CallStarted, Compaction, MessageEnded, Notice, Settings
from callgate.agent.feed import Feed
from callgate.agent.history import History
from callgate.agent.output import OutputInvalid, OutputType
from callgate.agent.settings import Prices
from callgate.calls import Text, ToolResult
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from callgate.models.events import CallReopened, CallSealed, FinishReason, ModelEvent, TextDelta, Usage
from callgate.models.model import StreamingContext
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.protocols import Allow, Ask, Verdict
from callgate.route import ValidatedCall
from tests.agent.scripts import Gate, Script, call, ends, says
from tests.patience import PATIENCE_S


async def rounds_of_the_loop() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# One conversation, one turn


async def test_a_turn_that_leaves_the_queue_lets_nobody_in() -> None:
    """A11: one turn at a time. Whoever gives up waiting has no turn to hand on."""
    gate = Gate()
    model = Script([gate, *says("one")], says("three"))
    async with Agent(model) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c"))
        await gate.reached.wait()
        second = asyncio.ensure_future(agent.run("2", conversation="c"))
        third = asyncio.ensure_future(agent.run("3", conversation="c"))
        await rounds_of_the_loop()
        second.cancel()
        await rounds_of_the_loop()
        assert second.cancelled()
        assert len(model.requests) == 1
        assert agent.conversations.busy("c")
        assert agent.conversations.waiting("c") == 1
        gate.open.set()
        assert [(await first).text, (await third).text] == ["one", "three"]
        assert not agent.conversations.busy("c")


async def test_a_turn_that_finds_the_queue_full_lets_nobody_in() -> None:
    """A11: one turn at a time, also where too many wait."""
    gate = Gate()
    model = Script([gate, *says("one")])
    async with Agent(model) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c"))
        await gate.reached.wait()
        others = [asyncio.ensure_future(agent.run("more", conversation="c")) for _ in range(64)]
        await rounds_of_the_loop()
        with pytest.raises(UsageError, match="64 turns"):
            await agent.run("one too many", conversation="c")
        await rounds_of_the_loop()
        assert len(model.requests) == 1
        agent.kill("c")
        assert {(await run).turn_status for run in (first, *others)} == {"stopped_by_user"}


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_what_is_asked_for_between_two_turns_is_meant_for_the_second(end: str) -> None:
    """A12: no moment in which a stop is lost, not even the one in which the conversation is handed on."""
    gate = Gate()
    model = Script([gate, *says("one")], says("two"), says("three"))
    async with Agent(model) as agent:
        first = asyncio.ensure_future(agent.run("1", conversation="c"))
        await gate.reached.wait()
        second = asyncio.ensure_future(agent.run("2", conversation="c"))
        await rounds_of_the_loop()
        gate.open.set()
        while agent.conversations.waiting("c"):
            await asyncio.sleep(0)
        getattr(agent, end)("c")
        assert (await first).text == "one"
        assert (await second).turn_status == "stopped_by_user"
        assert (await agent.run("3", conversation="c")).turn_status == "completed"


def test_threads_that_begin_at_once_share_one_event_loop() -> None:
    """One engine, one event loop: whoever comes first makes it, whoever else comes waits for it."""
    loops: set[int] = set()

    async def stream(context: StreamingContext) -> AsyncIterator[ModelEvent]:
        loops.add(threading.get_ident())
        yield TextDelta("done")
        yield ends(Text(text="done"))

    for _ in range(10):
        agent = Agent(Lying(*[stream] * 8))
        together = threading.Barrier(8)

        def run(agent: Agent = agent, together: threading.Barrier = together) -> str:
            together.wait()
            return agent.run_sync("x").text

        with ThreadPoolExecutor(8) as pool:
            assert {one.result() for one in [pool.submit(run) for _ in range(8)]} == {"done"}
        agent.close_sync()
        assert len(loops) == 1
        loops.clear()


# Models that lie


class Lying:
    """A model that yields what the test says, one generator a pass."""

    provider = "lying"
    name = "liar-1"
    native_tools = True

    def __init__(self, *answers: Callable[[StreamingContext], AsyncIterator[ModelEvent]]) -> None:
        self._answers = list(answers)

    def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        return self._answers.pop(0)(context)


def lies(*events: ModelEvent) -> Callable[[StreamingContext], AsyncIterator[ModelEvent]]:
    async def stream(context: StreamingContext) -> AsyncIterator[ModelEvent]:
        for event in events:
            yield event

    return stream


done = lies(TextDelta("done"), ends(Text(text="done")))


class Desk:
    """Two tools, and what they were asked."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.changed: list[str] = []

    def tools(self) -> list[Tool]:
        @tool(effect="none")
        async def look(what: str = "") -> str:
            """Look."""
            self.looked.append(what)
            return f"saw {what}"

        @tool(effect="once")
        async def change(what: str = "") -> str:
            """Change."""
            self.changed.append(what)
            return f"changed {what}"

        return [look, change]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_model_that_does_not_end_after_its_end_is_left_there() -> None:
    """B2, B18: the message is whole; what the model does afterwards keeps nobody waiting."""
    closed: list[str] = []

    async def stream(context: StreamingContext) -> AsyncIterator[ModelEvent]:
        try:
            yield TextDelta("done")
            yield ends(Text(text="done"))
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    async with Agent(Lying(stream)) as agent:
        result = await asyncio.wait_for(agent.run("x"), 60)
    assert (result.turn_status, result.text, closed) == ("completed", "done", ["closed"])


async def test_a_model_that_will_not_close_can_be_killed() -> None:
    """B17, B18: kill unblocks a pass at every moment, also while the model closes its connection."""
    closing = asyncio.Event()

    async def stream(context: StreamingContext) -> AsyncIterator[ModelEvent]:
        try:
            yield TextDelta("done")
            yield ends(Text(text="done"))
        finally:
            closing.set()
            await asyncio.Event().wait()

    async with Agent(Lying(stream)) as agent:
        run = asyncio.ensure_future(agent.run("x", conversation="c"))
        await closing.wait()
        agent.kill("c")
        assert (await asyncio.wait_for(run, 60)).text == "done"


class Unclosable:
    """Events that end well, and fail when they are closed."""

    def __init__(self, events: Sequence[ModelEvent]) -> None:
        self._events = iter(events)

    def __aiter__(self) -> AsyncIterator[ModelEvent]:
        return self

    async def __anext__(self) -> ModelEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration

    async def aclose(self) -> None:
        raise RuntimeError("the connection is gone")


@pytest.mark.parametrize(("events", "reason"), [((ends(Text(text="a")),), ""), ((), "RuntimeError: the connection is gone")])
async def test_a_message_that_has_ended_is_whole_also_where_closing_fails(events: Sequence[ModelEvent], reason: str) -> None:
    """What the connection does after the last event changes nothing that was said."""
    async with Agent(Lying(lambda _: Unclosable(events))) as agent:
        result = await agent.run("x")
    assert (result.status, result.reason) == ("failed" if reason else "completed", reason)


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Speechless(), "Speechless, whose text cannot be shown: its __str__ fails"),
        (TimeoutError(), "TimeoutError, without a message"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ExceptionGroup: two (2 sub-exceptions): ValueError: a; KeyError: 'b'"),
    ],
)
async def test_a_run_ends_and_says_why_whatever_its_model_raises(error: Exception, reason: str) -> None:
    """`run` never raises for what a model does, and the reason is for people."""
    async with Agent(Script([error])) as agent:
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == ("error", reason)


async def test_an_observer_that_raises_a_cancel_breaks_no_call(desk: Desk) -> None:
    """As one does that asks a cancelled task for its result: nobody has cancelled the run, and it goes on."""

    def observe(event: AgentEvent) -> None:
        if isinstance(event, CallStarted):
            raise asyncio.CancelledError

    async with Agent(Script(says(call("look")), says("done")), tools=desk.tools()) as agent:
        result = await asyncio.wait_for(agent.run("x", on_event=observe), PATIENCE_S)
    assert (result.status, result.text) == ("completed", "done")


async def test_what_comes_after_the_end_does_not_count() -> None:
    """`Finished` comes last and exactly once: the first one is the end."""
    answer = lies(TextDelta("a"), ends(Text(text="a")), TextDelta("b"), ends(Text(text="b")))
    async with Agent(Lying(answer)) as agent:
        result = await agent.run("x")
    assert (result.text, len(result.messages)) == ("a", 2)


async def test_a_call_that_nothing_sealed_is_closed_by_the_message(desk: Desk) -> None:
    """A model may tell of its calls with the whole message only; its good end is their proof, and a bad one is none."""
    answers = [lies(ends(call("change", {"what": "x"}))), done]
    async with Agent(Lying(*answers), tools=desk.tools()) as agent:
        assert (await agent.run("x")).completed
    assert desk.changed == ["x"]
    answers = [lies(ends(call("change", {"what": "cut"}), reason="length")), done]
    async with Agent(Lying(*answers), tools=desk.tools()) as agent:
        result = await agent.run("x")
    assert desk.changed == ["x"]
    assert [each.failure_class for each in result.results] == ["truncated_arguments"]


A, OLD, NEW = call("look", {"what": "a"}, id="a"), call("change", {"what": "old"}, id="b"), call("change", {"what": "new"}, id="b")


@pytest.mark.parametrize(
    "events",
    [
        [CallSealed(1, OLD), CallReopened(1), CallSealed(0, A), CallSealed(1, NEW, "finished"), ends(A, NEW)],
        [CallSealed(0, A), CallSealed(1, OLD), CallReopened(1), CallSealed(1, NEW), ends(A, NEW)],
        [CallSealed(0, A), CallSealed(1, OLD), CallSealed(1, NEW), ends(A, NEW)],
        [CallSealed(0, A), CallSealed(1, OLD), ends(A, NEW)],
        [CallSealed(0, A), CallSealed(1, NEW), CallSealed(2, OLD), ends(A, NEW)],
        [CallSealed(1, A), CallSealed(0, OLD), ends(A, NEW)],
    ],
    ids=["went on while held", "went on", "sealed twice", "other than sealed", "more than the message has", "other places"],
)
async def test_only_what_the_message_says_in_the_end_is_executed(desk: Desk, events: list[ModelEvent]) -> None:
    """R4, D1: the calls of a message are those of the whole message; what was sealed before and is not in it has no effect."""
    async with Agent(Lying(lies(*events), done), tools=desk.tools()) as agent:
        result = await agent.run("x")
    assert desk.changed == ["new"]
    assert [each.text for each in result.results] == ["saw a", "changed new"]
    assert result.spent.calls == 2


async def test_a_call_that_is_read_again_is_paid_for_once(desk: Desk) -> None:
    """E3: the budget of calls counts calls, not readings of them."""
    old, new = call("look", {"what": "old"}, id="b"), call("look", {"what": "new"}, id="b")
    answer = lies(CallSealed(0, old), CallReopened(0), CallSealed(0, new, "finished"), ends(new))
    settings = Settings(budget=Budget(calls=1))
    async with Agent(Lying(answer, done), tools=desk.tools(), settings=settings) as agent:
        result = await agent.run("x")
    assert [each.text for each in result.results] == ["saw new"]
    assert result.spent.calls == 1


# Budgets, observers, pauses


async def test_nothing_starts_early_where_no_iteration_is_left(desk: Desk) -> None:
    """R23: a call with no iteration left is refused, also one that could start while the message streams."""
    model = Script(says(call("look", {"what": "first"})), says(call("look", {"what": "second"})))
    async with Agent(model, tools=desk.tools(), settings=Settings(budget=Budget(iterations=1))) as agent:
        result = await agent.run("x")
    assert (result.turn_status, desk.looked) == ("budget_exhausted", ["first"])


async def test_exit_calls_count_also_in_a_message_that_is_too_late(desk: Desk) -> None:
    """E19: exit signals are recorded whenever they occur."""
    report = ToolSpec(name="report", description="", schema={"type": "object"})
    model = Script(says(call("look")), says(call("look"), call("report", {"n": 1}, position=1)))
    agent = Agent(model, tools=desk.tools(), exit_tools=[report], settings=Settings(budget=Budget(iterations=1)))
    async with agent:
        result = await agent.run("x")
    assert (result.turn_status, [signal.arguments for signal in result.signals]) == ("budget_exhausted", [{"n": 1}])


async def test_an_observer_that_fails_leaves_no_call_running() -> None:
    """One end per call: what started early ends with the run, whoever ended the run."""
    started, ended = asyncio.Event(), asyncio.Event()

    @tool(effect="none")
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    def observe(event: AgentEvent) -> None:
        if isinstance(event, MessageEnded):
            raise ValueError("no more")

    gate = Gate()
    asked = call("wait", id="w")
    async with Agent(Script([CallSealed(0, asked), gate, ends(asked)]), tools=[wait]) as agent:
        run = asyncio.ensure_future(agent.run("x", on_event=observe))
        await started.wait()
        gate.open.set()
        result = await run
        assert (result.turn_status, result.reason) == ("error", "ValueError: no more")
        assert ended.is_set()
        kinds = [event.kind for event in agent.engine.journal.read(run=result.run)]
        assert "emission.discarded" in kinds


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_the_pause_before_an_empty_answer_is_asked_for_again_can_be_ended(end: str) -> None:
    """R38: asking again is host policy; stopped is stopped, in this pause too."""
    settings = Settings(empty_retries=1, empty_retry_s=3_600)
    waits = asyncio.Event()
    async with Agent(Script([ends()]), settings=settings) as agent:
        run = asyncio.ensure_future(
            agent.run("x", conversation="c", on_event=lambda event: waits.set() if isinstance(event, Notice) else None)
        )
        await waits.wait()
        getattr(agent, end)("c")
        assert (await asyncio.wait_for(run, 60)).turn_status == "stopped_by_user"


@pytest.mark.parametrize("end", ["stop", "kill", "engine.control.follow_up"])
async def test_a_compaction_can_be_ended(end: str) -> None:
    """R26: stop, kill and follow-up are seen between two passes; the history stays as it is."""
    waits = asyncio.Event()

    async def compact(messages: Sequence[Message]) -> Sequence[Message]:
        waits.set()
        await asyncio.Event().wait()
        return messages

    compaction = Compaction(compact=compact, at_tokens=1, timeout_s=3_600)
    async with Agent(Script(), compact=compaction) as agent:
        run = asyncio.ensure_future(agent.run("x", conversation="c"))
        await waits.wait()
        attrgetter(end)(agent)("c")
        result = await asyncio.wait_for(run, 60)
    assert result.status == "stopped"
    assert [type(message) for message in result.messages] == [UserMessage]


# Waiting for a human


class AskForChanges:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return Ask(question=f"May it {call.arguments['what']}?") if call.tool.name == "change" else Allow()


async def test_a_run_that_waited_goes_on_for_whom_it_began(desk: Desk) -> None:
    """R31, owner's decision: an approval is bound to the principal, and so is the run that resumes."""
    people: list[tuple[str, str, str]] = []

    @tool(effect="once")
    async def change(what: str, ctx: ToolContext) -> str:
        """Change."""
        people.append((ctx.scope.principal, ctx.scope.actor, ctx.scope.locale))
        return "changed"

    model = Script(says(call("change", {"what": "x"})), says("done"))
    scope = Scope(principal="ann", actor="bob", locale="de")
    async with Agent(model, tools=[change], policies=[AskForChanges()]) as agent:
        waiting = await agent.run("x", conversation="c", scope=scope)
        assert waiting.pending is not None
        agent.engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(waiting)
    assert (result.text, people) == ("done", [("ann", "bob", "de")])


async def test_a_call_that_waited_is_paid_for_once(desk: Desk) -> None:
    """E3: the budget has one place for it, whether or not a human was asked in between."""
    asked = [call("change", {"what": str(place)}, id=str(place), position=place) for place in range(2)]
    model = Script(says(*asked), says("done"))
    agent = Agent(model, tools=desk.tools(), policies=[AskForChanges()], settings=Settings(budget=Budget(calls=2)))
    async with agent:
        waiting = await agent.run("x")
        assert waiting.pending is not None
        agent.engine.answer(waiting.pending.approvals[1].approval_id, allow=True)
        partly = await agent.resume(waiting)
        assert (partly.turn_status, desk.changed) == ("waiting", ["1"])
        assert partly.pending is not None
        agent.engine.answer(partly.pending.approvals[0].approval_id, allow=True)
        result = await agent.resume(partly)
    assert (result.text, desk.changed, result.spent.calls) == ("done", ["1", "0"], 2)


# Long and odd answers


async def test_a_consumer_that_lags_costs_no_more_than_the_text() -> None:
    """Every buffer has a bound: what waits is put together in pieces, and no piece is copied for each further one."""
    feed = Feed()
    for _ in range(20_000):
        feed.put(TextDelta("abcd"))
    feed.end()
    pieces = [event.text async for event in feed if isinstance(event, TextDelta)]
    assert "".join(pieces) == "abcd" * 20_000
    assert max(map(len, pieces)) < 4_096
    assert len(pieces) < 100


@pytest.mark.parametrize("text", ["```json\n5\n```", "```json\r\n5\r\n```\r\n", "```\n 5```", " 5 "])
def test_an_answer_in_a_code_block_is_the_answer(text: str) -> None:
    assert OutputType(int).read(text) == 5


@pytest.mark.parametrize("text", ["```json\n" + "\n" * 200_000 + "x", "```" * 100_000, "```", "`````", "```json 5```"])
def test_an_answer_that_only_looks_like_a_code_block_is_refused_at_once(text: str) -> None:
    """The model's text is untrusted: however it is made, reading it costs no more than its length."""
    with pytest.raises(OutputInvalid):
        OutputType(int).read(text)


@pytest.mark.parametrize("text", ['{"count": "5"}', '{"count": true}', '{"count": 5.0}'])
def test_a_pydantic_answer_is_not_bent_into_shape(text: str) -> None:
    """The same strictness as for every other type."""
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Report", count=(int, ...))
    with pytest.raises(OutputInvalid):
        OutputType(model).read(text)
    assert OutputType(model).read('{"count": 5}').count == 5


def test_an_id_that_comes_again_and_again_is_told_apart_each_time() -> None:
    """C37: each call has an id of its own, also where a server numbers anew in every answer."""
    history = History([AssistantMessage(parts=(ToolCall(id="call_0-3", name="look", arguments="{}"),))])
    result = ToolResult(id="", uid="", name="look", status="ok", content=(Text(text="seen"),))
    for _ in range(20_000):
        history.commit(AssistantMessage(parts=(ToolCall(id="call_0", name="look", arguments="{}"),)), [result])
    ids = [message.call_id for message in history.messages if isinstance(message, ToolMessage)]
    assert len(set(ids)) == 20_000
    assert ids[:4] == ["call_0", "call_0-2", "call_0-4", "call_0-5"]


# What is wrong is said where it is written


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preset": "chatty"}, r"Agent\(preset='chatty'\) is not known. Choose one of: agent, chat, tick, worker."),
        ({"text_calls": "yes"}, r"Choose one of: auto, fallback, never."),
        ({"tools": [print]}, r"<built-in function print> is no tool. Put @tool over the function"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_can(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Agent(Script(), **options)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(budget=Budget(iterations=-1)), "Budget(iterations=-1) is no limit. Give 0 or more, or None for none."),
        (Settings(budget=Budget(cost=float("nan")), prices=Prices(input=1.0)), "Budget(cost=nan) is no limit."),
        (Settings(output_retries=-1), "Settings(output_retries=-1) is no limit. Give 0 or more."),
        (Settings(budget=Budget(cost=0.5)), "Budget(cost=0.5) would never be used up: nothing has a price."),
    ],
)
def test_a_limit_that_limits_nothing_is_refused(settings: Settings, said: str) -> None:
    """A budget that is silently none is found out on the bill."""
    with pytest.raises(UsageError) as caught:
        Agent(Script(), settings=settings)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_the_beginning_of_a_typed_answer_is_not_the_answer(reason: FinishReason) -> None:
    """`12` may be what there is of `1200`."""
    model = Script(says("12", reason=reason), says("1200"))
    async with Agent(model, output=int) as agent:
        result = await agent.run("How many?")
    assert (result.output, len(model.requests)) == (1200, 2)


async def test_a_history_in_a_providers_form_is_refused_with_what_reads_it() -> None:
    """It would be sent as nothing, and the model would answer without it."""
    async with Agent(Script(says("done"))) as agent:
        with pytest.raises(UsageError, match=r"^Message 1 of the history is a dict\. .*from_native makes them of OpenAI's\.$"):
            await agent.run("x", history=[UserMessage("a"), {"role": "user", "content": "b"}])  # type: ignore[list-item]
        assert (await agent.run("x")).status == "completed"


@pytest.mark.parametrize("task", [None, 5, ["x"], b"x"])
async def test_a_task_that_is_no_message_is_refused_before_anything_begins(task: Any) -> None:
    async with Agent(Script(says("done"))) as agent:
        with pytest.raises(UsageError, match="Give text, or a UserMessage"):
            await agent.run(task, conversation="c")
        assert (await agent.run("x", conversation="c")).text == "done"


async def test_an_answer_that_a_filter_has_cut_says_so() -> None:
    async with Agent(Script(says("half", reason="content_filter"))) as agent:
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == ("completed", "the answer was cut by the provider's content filter")


def test_a_provider_that_counts_oddly_earns_nothing() -> None:
    """A budget in money is never refilled by a report of more cached tokens than tokens."""
    assert Prices(input=3.0, cached=1.0).of(Usage(input_tokens=10, cached_tokens=1_000)) >= 0
