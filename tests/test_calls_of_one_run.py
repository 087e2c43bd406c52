"""The rules of side by side hold within a run however its calls arrive; declared resources hold across all runs of an engine."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from callgate import AbortController, Engine, Limits, Scope, SqliteJournal, ToolContext, tool
from callgate.hooks import after_call
from callgate.tools import TouchedKeys
from callgate.tools.resource_conflicts import conflict
from tests.engine_calls import call, kinds, result_of, said
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


@pytest.mark.parametrize("how", ["nested", "engine", "message"])
async def test_calls_that_a_bare_tool_makes_run_one_after_another_and_do_not_wait_for_their_own_tool(how: str) -> None:
    meeting = Meeting()
    engines: list[Engine] = []

    @tool
    async def outer(ctx: ToolContext) -> list[str]:
        """Call others."""
        raws = [call("act", name=name, id=f"{ctx.uid}-{name}") for name in "abc"]
        if how == "message":
            return [result_of(outcome).text for outcome in await engines[0].call_many(raws, ctx.scope)]
        if how == "engine":
            return [one.text for one in await asyncio.gather(*[said(engines[0], raw, ctx.scope) for raw in raws])]
        return [one.text for one in await asyncio.gather(*[ctx.call("act", {"name": name}) for name in "abc"])]

    async with Engine([*meeting.tools(), outer]) as engine:
        engines.append(engine)
        results = await asyncio.gather(*[said(engine, call("outer"), ONE) for _ in range(2)])
    assert [result.structured for result in results] == [["a", "b", "c"]] * 2
    assert meeting.most == 1


async def test_a_tool_may_use_again_what_it_has_declared_itself() -> None:
    meeting = Meeting()

    @tool(effect="idempotent", writes="account:{name}")
    async def move(name: str, ctx: ToolContext) -> str:
        """Book twice."""
        await ctx.call("book", {"name": name})
        return (await ctx.call("book", {"name": name})).text

    async with Engine([*meeting.tools(), move]) as engine:
        calls = [said(engine, call("move", name="a"), scope) for scope in (ONE, TWO, ONE)]
        assert [result.text for result in await asyncio.gather(*calls)] == ["a"] * 3
    assert meeting.most == 1


async def test_reads_that_call_bare_tools_do_not_wait_for_each_other_forever() -> None:
    meeting = Meeting()

    @tool(effect="none")
    async def research(name: str, ctx: ToolContext) -> str:
        """Ask others."""
        await meeting.work(f"before {name}")
        return (await ctx.call("act", {"name": name})).text

    async with Engine([*meeting.tools(), research]) as engine:
        results = await engine.call_many([call("research", name=name) for name in "abcd"], ONE)
    assert [result_of(outcome).text for outcome in results] == list("abcd")


async def test_of_two_tools_that_want_what_the_other_has_declared_one_call_is_refused() -> None:
    both = asyncio.Barrier(2)
    meeting = Meeting()

    @tool(effect="idempotent", writes="account:{mine}")
    async def move(mine: str, other: str, ctx: ToolContext) -> str:
        """Book on the other account."""
        await both.wait()
        result = await ctx.call("book", {"name": other})
        return f"{result.status} {result.code} {result.error}"

    async with Engine([*meeting.tools(), move]) as engine:
        calls = [said(engine, call("move", mine=mine, other=other), ONE) for mine, other in ("ab", "ba")]
        first, second = [result.text for result in await asyncio.gather(*calls)]
    assert {first.split()[0], second.split()[0]} == {"ok", "error"}
    refused = first if first.startswith("error") else second
    assert refused.startswith("error waits_for_itself book was not started: it must not run beside move (one/0/")
    assert "Nothing happened; it may be sent again" in refused


async def test_a_refusal_tells_nothing_of_another_run() -> None:
    both = asyncio.Barrier(2)

    @tool(effect="idempotent", writes="account:{mine}")
    async def move(mine: str, other: str, ctx: ToolContext) -> str:
        """Book on the other account."""
        await both.wait()
        return str((await ctx.call("book", {"name": other})).error)

    async with Engine([*Meeting().tools(), move]) as engine:
        calls = [said(engine, call("move", mine=a, other=b), Scope(run=f"secret-{a}")) for a, b in ("ab", "ba")]
        texts = " ".join(result.text for result in await asyncio.gather(*calls))
    assert "a call of another run" in texts
    assert "secret" not in texts


async def test_a_cached_call_is_not_joined_if_that_would_wait_for_itself() -> None:
    """The summary that runs waits for the update; the update wants the same summary."""
    asked, updating = asyncio.Event(), asyncio.Event()

    @tool(effect="none", reads="page:{page}")
    async def read(page: str) -> str:
        """Read."""
        return page

    @tool(effect="none", cacheable=True, cache_scope="session")
    async def summary(page: str, ctx: ToolContext) -> str:
        """Summarise."""
        asked.set()
        await updating.wait()
        return (await ctx.call("read", {"page": page})).text

    @tool(effect="idempotent", writes="page:{page}")
    async def update(page: str, ctx: ToolContext) -> str:
        """Update."""
        await asked.wait()
        updating.set()
        for _ in range(50):
            await asyncio.sleep(0)
        return str((await ctx.call("summary", {"page": page})).code)

    async with Engine([read, summary, update]) as engine:
        outside, inside = await asyncio.gather(said(engine, call("summary", page="p"), ONE), said(engine, call("update", page="p"), TWO))
    assert (outside.text, inside.text) == ("p", "waits_for_itself")


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


async def test_a_nested_call_waits_no_longer_than_its_time() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="idempotent", writes="account:a")
    async def hold() -> None:
        """Hold."""
        begun.set()
        await go_on.wait()

    @tool(effect="none", timeout_s=0.2, retryable=False)
    async def outer(ctx: ToolContext) -> str:
        """Call on."""
        result = await ctx.call("hold", {})
        go_on.set()
        return str(result.error)

    async with Engine([hold, outer]) as engine:
        held = asyncio.create_task(said(engine, call("hold"), TWO))
        await begun.wait()
        result = await said(engine, call("outer"), ONE)
        go_on.set()
        await held
        assert "call.started" not in kinds(engine, "one/0/1")
    assert result.failure_class == "timeout"


def random_tools(chance: random.Random, live: list[tuple[int, TouchedKeys | None, bool]], broken: list[str]) -> list[Any]:
    """Tools that call others to a random depth; each notes what its own code does at the same time as others."""

    def keys(arguments: Mapping[str, object], scope: Scope) -> list[str]:
        return str(arguments["keys"]).split()

    def make(name: str, options: dict[str, Any]) -> Callable[..., Any]:
        async def work(number: int, keys: str, depth: int, ctx: ToolContext) -> int:
            """Work, call others, work."""
            touched = TouchedKeys(writes=frozenset(keys.split())) if "writes" in options else None
            mine = (number, touched, options["effect"] == "none")
            for _ in range(2):
                for _, other, _ in live:
                    if touched is not None and other is not None and conflict(touched, other) and not depth:
                        broken.append(f"{mine} beside {live}")
                live.append(mine)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                live.remove(mine)
                if depth:
                    made = [{"number": chance.randrange(9), "keys": chance.choice(KEYS), "depth": depth - 1} for _ in range(2)]
                    await asyncio.gather(*[ctx.call(chance.choice(NAMES), one) for one in made])
            return number

        if "writes" in options:
            options["writes"] = keys
        return tool(name=name, **options)(work)

    return [
        make("reads", {"effect": "none"}),
        make("writes", {"effect": "idempotent", "writes": "declared"}),
        make("acts", {"effect": "once"}),
    ]


NAMES = ["reads", "writes", "acts"]
KEYS = ["a:", "a:1", "a:2", "b:1", "a:1 b:1", "b:1 c:1"]


@pytest.mark.parametrize("seed", range(40))
async def test_nested_calls_always_end_and_never_break_the_rule_of_declared_resources(seed: int) -> None:
    chance = random.Random(seed)
    live: list[tuple[int, TouchedKeys | None, bool]] = []
    broken: list[str] = []
    async with Engine(random_tools(chance, live, broken)) as engine, asyncio.timeout(20):
        raws = [
            call(chance.choice(NAMES), number=number, keys=chance.choice(KEYS), depth=chance.choice([0, 0, 1, 2])) for number in range(12)
        ]
        await asyncio.gather(*[engine.call(raw, chance.choice([ONE, TWO])) for raw in raws])
    assert not broken


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
    assert "give each a scope of its own: engine.call(raw, Scope(conversation=...))" in text


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
