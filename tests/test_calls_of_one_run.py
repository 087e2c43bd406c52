"""The rules of side by side hold within a run however its calls arrive; declared resources hold across all runs of an engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from callgate import AbortController, Engine, Limits, Scope, SqliteJournal, Suspended, tool
from callgate.hooks import after_call
from callgate.protocols import Allow, Modify, Verdict
from callgate.stage_types import ValidatedCall
from tests.engine_calls import call, result_of, said
from tests.waiting import PATIENCE_S

ONE = Scope(run="one")
TWO = Scope(run="two")


class Meeting:
    """Counts the tools that run at the same time. Each lets the event loop run often enough for others to start."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.most = 0
        self.order: list[str] = []

    async def work(self, name: str) -> str:
        self.running.append(name)
        self.order.append(name)
        self.most = max(self.most, len(self.running))
        for _ in range(50):
            await asyncio.sleep(0)
        self.running.remove(name)
        return name

    def acting(self, name: str, **settings: Any) -> Any:
        """Return a tool with this name that does the same as `act`."""

        async def act(name: str) -> str:
            """Act on the world."""
            return await self.work(name)

        return tool(name=name, **settings)(act)

    def tools(self) -> list[Any]:
        @tool
        async def act(name: str) -> str:
            """Act on the world."""
            return await self.work(name)

        @tool(effect="none")
        async def look(name: str) -> str:
            """Look."""
            return await self.work(name)

        @tool(effect="idempotent", writes="account:{name}")
        async def book(name: str) -> str:
            """Book."""
            return await self.work(name)

        @tool(effect="none", reads="account:{name}")
        async def balance(name: str) -> str:
            """Tell the balance."""
            return await self.work(name)

        return [act, look, book, balance]


async def allows_after(steps: int, arguments: dict[str, Any]) -> bool:
    """Let a call run without a human, after some steps of the event loop."""
    for _ in range(100 * steps):
        await asyncio.sleep(0)
    return False


async def most_at_once(*calls: tuple[str, str, Scope]) -> int:
    meeting = Meeting()
    async with Engine(meeting.tools()) as engine:
        results = await asyncio.gather(*[said(engine, call(name, name=what), scope) for name, what, scope in calls])
    assert [result.text for result in results] == [what for _, what, _ in calls]
    return meeting.most


async def test_bare_tools_called_at_the_same_time_in_one_run_never_run_beside_each_other() -> None:
    assert await most_at_once(*[("act", name, ONE) for name in "abcd"]) == 1


async def test_calls_without_a_scope_belong_to_one_run() -> None:
    meeting = Meeting()
    async with Engine(meeting.tools()) as engine:
        await asyncio.gather(*[engine.call(call("act", name=name)) for name in "abcd"])
    assert (meeting.most, meeting.order) == (1, list("abcd"))


@pytest.mark.parametrize(
    ("calls", "most"),
    [
        ((("look", "a", ONE), ("look", "b", ONE), ("look", "c", ONE)), 3),
        ((("look", "a", ONE), ("act", "b", ONE), ("look", "c", ONE)), 1),
        ((("book", "a", ONE), ("book", "b", ONE)), 2),
        ((("book", "a", ONE), ("book", "a", ONE)), 1),
        ((("book", "a", ONE), ("look", "b", ONE)), 1),
        ((("book", "a", ONE), ("balance", "a", ONE)), 1),
        ((("book", "a", ONE), ("balance", "b", ONE)), 2),
        ((("balance", "a", ONE), ("balance", "a", ONE)), 2),
        ((("act", "a", ONE), ("act", "b", TWO)), 2),
        ((("act", "a", ONE), ("look", "b", TWO)), 2),
        ((("book", "a", ONE), ("book", "a", TWO)), 1),
        ((("book", "a", ONE), ("balance", "a", TWO)), 1),
        ((("book", "a", ONE), ("book", "b", TWO)), 2),
    ],
)
async def test_calls_run_side_by_side_as_they_would_in_one_message(calls: tuple[tuple[str, str, Scope], ...], most: int) -> None:
    assert await most_at_once(*calls) == most


async def test_conversations_without_a_run_of_their_own_do_not_wait_for_each_other() -> None:
    """A server that names only the conversation of each user must not become one queue."""
    assert await most_at_once(*[("act", name, Scope(conversation=name)) for name in "abcd"]) == 4
    assert await most_at_once(*[("act", name, Scope(conversation="one")) for name in "abcd"]) == 1


async def test_two_messages_of_one_run_keep_the_rules_between_each_other() -> None:
    meeting = Meeting()
    async with Engine(meeting.tools()) as engine:
        messages = [[call("act", name=name + number) for name in "ab"] for number in "12"]
        await asyncio.gather(*[engine.call_many(message, ONE) for message in messages])
    assert meeting.most == 1
    assert [name for name in meeting.order if name[1] == "1"] == ["a1", "b1"]


async def test_a_read_that_waits_for_a_write_is_not_answered_from_before_it() -> None:
    stored = {"a": 1}
    meeting = Meeting()

    @tool(effect="none", reads="row:{row}", cacheable=True, cache_scope="session")
    async def get(row: str) -> int:
        """Get."""
        return stored[row]

    @tool(effect="idempotent", writes="row:{row}")
    async def put(row: str, value: int) -> None:
        """Put."""
        await meeting.work(row)
        stored[row] = value

    async with Engine([get, put]) as engine:
        assert (await said(engine, call("get", row="a"), ONE)).text == "1"
        _, read = await asyncio.gather(said(engine, call("put", row="a", value=2), TWO), said(engine, call("get", row="a"), ONE))
    assert read.text == "2"


async def test_code_of_the_host_that_runs_within_a_call_can_call_tools() -> None:
    """A hook, and a task that a tool has started: their calls count as part of the call."""
    meeting = Meeting()
    engines: list[Engine] = []

    @after_call("outer", timeout_s=2)
    async def call_again(done: object, result: object) -> None:
        assert (await said(engines[0], call("act", name="hook"), ONE)).success

    @tool
    async def outer() -> str:
        """Start a task."""
        task = asyncio.create_task(said(engines[0], call("act", name="task"), ONE))
        return (await task).text

    async with Engine([*meeting.tools(), outer], hooks=[call_again]) as engine:
        engines.append(engine)
        assert (await said(engine, call("outer"), ONE)).text == "task"
    assert meeting.order == ["task", "hook"]


@pytest.mark.parametrize("how", ["signal", "cancel", "close"])
async def test_a_call_that_is_ended_while_it_waits_never_starts_and_keeps_nobody_waiting(how: Literal["signal", "cancel", "close"]) -> None:
    begun, go_on, ran = asyncio.Event(), asyncio.Event(), list[str]()

    @tool
    async def act(name: str) -> str:
        """Act."""
        ran.append(name)
        begun.set()
        await go_on.wait()
        return name

    async with Engine([act], limits=Limits(grace_s=0.01)) as engine:
        stop = AbortController()
        first = asyncio.create_task(engine.call(call("act", name="first"), ONE))
        await begun.wait()
        second = asyncio.create_task(engine.call(call("act", name="second"), ONE, signal=stop.signal))
        third = asyncio.create_task(engine.call(call("act", name="third"), ONE))
        for _ in range(20):
            await asyncio.sleep(0)
        if how == "close":
            await engine.close()
        elif how == "signal":
            stop.abort("enough")
        else:
            second.cancel()
        outcomes = await asyncio.gather(second, return_exceptions=True)
        go_on.set()
        await asyncio.gather(first, third, return_exceptions=True)
    if how == "signal":
        result = result_of(outcomes[0])  # type: ignore[arg-type]
        assert (result.status, result.failure_class) == ("error", "not_started")
    assert ran == (["first"] if how == "close" else ["first", "third"])


# Calls without a scope


class Warnings(logging.Handler):
    """The warnings of the engine; `first` is set with the first one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self.first = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.first.set()


@pytest.fixture
async def warnings() -> AsyncIterator[Warnings]:
    handler, log = Warnings(), logging.getLogger("callgate")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


@pytest.mark.parametrize("scope", [Scope(), ONE], ids=["none", "named"])
async def test_a_long_wait_for_calls_without_a_scope_is_logged_once_with_what_to_do(scope: Scope, warnings: Warnings) -> None:
    go_on = asyncio.Event()

    @tool
    async def act(name: str) -> str:
        """Act."""
        await go_on.wait()
        return name

    async with Engine([act]) as engine:
        calls = [asyncio.ensure_future(said(engine, call("act", name=name), scope)) for name in "abc"]
        unscoped = [asyncio.ensure_future(said(engine, call("act", name=name))) for name in "de"]
        await asyncio.wait_for(warnings.first.wait(), PATIENCE_S)
        go_on.set()
        assert [one.text for one in await asyncio.gather(*calls, *unscoped)] == list("abcde")
    (text,) = warnings.texts
    assert f"act ({engine.run}/0/" in text
    assert f"has waited for act ({engine.run}/0/" in text
    assert "Neither came with a run or a conversation of its own" in text
    assert "give each its own: Scope(conversation=...)" in text


async def test_the_end_of_a_call_and_the_start_of_the_one_that_waited_for_it_share_a_commit(tmp_path: Path) -> None:
    """The waiting call may start when the result is recorded; its own start is durable only together with that end."""

    @tool
    async def act(name: int) -> int:
        """Act."""
        return name

    commits: list[int] = []
    async with Engine([act], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        waiting = asyncio.gather(*[said(engine, call("act", name=name), ONE) for name in range(50)])
        while not waiting.done():
            written = engine.journal.status().written
            if not commits or commits[-1] != written:
                commits.append(written)
            await asyncio.sleep(0)
        assert [result.structured for result in await waiting] == list(range(50))
        events = list(engine.journal.read(run="one"))
    ends = [event.position for event in events if event.kind == "call.completed"]
    apart = [end for end in ends[:-1] if end in commits]
    assert len(apart) < len(ends) / 2


async def test_a_call_that_a_human_is_asked_about_after_a_while_lets_the_others_run() -> None:
    meeting = Meeting()
    tools = [meeting.acting("pay", requires_approval=lambda arguments: time.sleep(0.05)), *meeting.tools()]
    calls = [call("pay", name="a"), call("act", name="b"), call("look", name="c")]
    async with Engine(tools) as engine:
        outcomes = [asyncio.create_task(engine.call(one, ONE)) for one in calls]
        other = await said(engine, call("act", name="other run"), TWO)
        results = [await outcome for outcome in outcomes]
    assert isinstance(results[0], Suspended)  # None is no answer, so a human is asked
    assert [result_of(result).text for result in results[1:]] == ["b", "c"]
    assert (other.text, meeting.order) == ("other run", ["other run", "b", "c"])


@pytest.mark.parametrize("how", ["alone", "in messages"])
async def test_calls_that_are_judged_start_in_the_order_in_which_they_arrived(how: str) -> None:
    meeting = Meeting()
    judged = [meeting.acting(f"judged_{s}", requires_approval=partial(allows_after, s)) for s in (3, 2, 1)]
    async with Engine([*judged, *meeting.tools()]) as engine:
        calls = [call("judged_3", name="a"), call("judged_2", name="b"), call("act", name="c"), call("judged_1", name="d")]
        await asyncio.gather(*[engine.call(one, ONE) if how == "alone" else engine.call_many([one], ONE) for one in calls])
    assert (meeting.most, meeting.order) == (1, ["a", "b", "c", "d"])


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_policy_can_make_a_call_in_the_run_of_the_call_that_it_judges(in_thread: bool) -> None:
    meeting = Meeting()
    loop = asyncio.get_running_loop()

    async def looks_first(arguments: dict[str, Any]) -> bool:
        return (await said(engine, call("act", name="from the policy"), ONE)).text != "from the policy"

    def looks_in_thread(arguments: dict[str, Any]) -> bool:
        return asyncio.run_coroutine_threadsafe(looks_first(arguments), loop).result(PATIENCE_S)

    needs_human = looks_in_thread if in_thread else looks_first
    async with Engine([meeting.acting("pay", requires_approval=needs_human), *meeting.tools()]) as engine:
        results = await asyncio.gather(*[said(engine, call(name, name=name), ONE) for name in ("pay", "act")])
    assert [result.text for result in results] == ["pay", "act"]
    assert meeting.order == ["from the policy", "pay", "act"]


async def test_a_call_whose_resources_a_policy_changes_still_runs_beside_no_other_call_on_them() -> None:
    meeting = Meeting()

    class OtherAccount:
        async def decide(self, judged: ValidatedCall) -> Verdict:
            await asyncio.sleep(0)
            return Modify(arguments={"name": "y"}, reason="x is closed") if judged.arguments["name"] == "x" else Allow(rule="open")

    async with Engine(meeting.tools(), policies=[OtherAccount()]) as engine:
        await asyncio.gather(*[said(engine, call("book", name=name), ONE) for name in ("x", "y", "x")])
    assert (meeting.most, meeting.order) == (1, ["y", "y", "y"])


async def test_a_call_of_a_message_whose_resources_a_policy_changes_to_those_of_a_judged_one_keeps_the_rules() -> None:
    """The first call needs what the second one keeps a place for, and the message lets the second one wait for the first."""
    meeting, judging, changed = Meeting(), asyncio.Event(), asyncio.Event()

    class OtherAccount:
        async def decide(self, judged: ValidatedCall) -> Verdict:
            if judged.arguments["name"] == "x":
                await judging.wait()
                return Modify(arguments={"name": "y"}, reason="x is closed")
            if judged.raw.id == "second":
                judging.set()
                await changed.wait()
                for _ in range(50):  # so that the first call has passed the gate
                    await asyncio.sleep(0)
            changed.set()
            return Allow(rule="open")

    async with Engine(meeting.tools(), policies=[OtherAccount()]) as engine, asyncio.timeout(PATIENCE_S):
        await engine.call_many([call("book", id="first", name="x"), call("book", id="second", name="y")], ONE)
    assert (meeting.most, meeting.order) == (1, ["y", "y"])


async def test_a_call_does_not_overtake_calls_that_wait_until_their_run_is_open(tmp_path: Path) -> None:
    """Runs are opened one after the other: the second call of a run waits behind those of other runs, although its own run is open."""
    order: list[str] = []
    begun = asyncio.Event()

    @tool
    async def note(name: str) -> None:
        """Note a name."""
        order.append(name)
        begun.set()

    async with Engine([note], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        scopes = [ONE, *[Scope(run=f"other{n}") for n in range(50)], ONE]
        earlier = [asyncio.create_task(engine.call(call("note", name=f"{n} in {scope.run}"), scope)) for n, scope in enumerate(scopes)]
        await begun.wait()
        await engine.call(call("note", name=f"last in {ONE.run}"), ONE)
        await asyncio.gather(*earlier)
    assert [name for name in order if name.endswith(f"in {ONE.run}")] == [f"{n} in {ONE.run}" for n in (0, 51, "last")]
