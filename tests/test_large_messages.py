"""Messages with very many calls: the event loop runs, the journal keeps up, and calls above the limit get an error result."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path

import pytest

from callgate import Engine, Limits, RawCall, Scope, SqliteJournal, Tool, ToolContext, emission, tool
from callgate.agent import Agent
from callgate.calls import Outcome
from callgate.testing import Call, ScriptedModel
from tests.canonical_json import canonical
from tests.engine_calls import bodies, call, kinds, result_of
from tests.host_fakes import Hider

MOST = 5


def counting(ran: list[int]) -> Tool:
    @tool(effect="none")
    async def look(n: int) -> str:
        """Look."""
        ran.append(n)
        return f"seen {n}"

    return look


def looks(count: int) -> list[RawCall]:
    return [call("look", n=n, id=f"c{n}") for n in range(count)]


async def together(engine: Engine, raws: list[RawCall], scope: Scope) -> list[Outcome]:
    return await engine.call_many(raws, scope)


async def one_by_one(engine: Engine, raws: list[RawCall], scope: Scope) -> list[Outcome]:
    begun = engine.emission(scope)
    assert [begun.add(raw) for raw in raws] == list(range(len(raws)))
    assert len(begun.ends_so_far) == len(raws)
    return await begun.seal()


@pytest.mark.parametrize("hand_in", [together, one_by_one])
@pytest.mark.parametrize("redactor", [None, Hider()], ids=["", "with a redactor"])
async def test_calls_above_the_message_limit_are_refused_individually_and_recorded_once(hand_in: object, redactor: Hider | None) -> None:
    ran: list[int] = []
    async with Engine([counting(ran)], limits=Limits(calls_per_message=MOST), redactor=redactor) as engine:
        outcomes = await hand_in(engine, looks(MOST + 3), Scope(conversation="c", run="r"))  # type: ignore[operator]
        results = [result_of(outcome) for outcome in outcomes]
        assert [one.id for one in results] == [f"c{n}" for n in range(MOST + 3)]
        assert [one.name for one in results] == ["look"] * (MOST + 3)
        assert [one.code for one in results] == [None] * MOST + ["too_many_calls"] * 3
        assert {one.failure_class for one in results[MOST:]} == {"not_started"}
        assert all("8 calls; 5 is the limit" in str(one.error) for one in results[MOST:])
        assert ran == list(range(MOST))
        assert kinds(engine).count("call.received") == MOST
        [noted] = bodies(engine, "emission.limited")
        assert noted["details"] == {"limit": MOST, "refused": 3}
        assert [event.run for event in engine.journal.read() if event.kind == "emission.limited"] == ["r"]
        assert engine.control.errors_in_a_row("c") == 3


async def test_a_message_with_exactly_the_allowed_number_of_calls_runs_them_all() -> None:
    ran: list[int] = []
    async with Engine([counting(ran)], limits=Limits(calls_per_message=MOST)) as engine:
        outcomes = await engine.call_many(looks(MOST))
        assert {result_of(outcome).status for outcome in outcomes} == {"ok"}
        assert "emission.limited" not in kinds(engine)


async def test_an_agent_tells_the_model_which_of_its_calls_were_too_many() -> None:
    """Each call has a result in its position, so the model can send the refused calls again."""
    ran: list[int] = []
    calls = [Call("look", {"n": n}) for n in range(MOST + 2)]
    model = ScriptedModel([calls, [Call("look", {"n": 5})], "Done."])
    async with Agent(model, Engine([counting(ran)], limits=Limits(calls_per_message=MOST))) as agent:
        result = await agent.run("Look everywhere.")
    assert result.status == "completed"
    assert [one.code for one in result.results] == [None] * MOST + ["too_many_calls"] * 2 + [None]
    assert ran == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("hand_in", [together, one_by_one])
@pytest.mark.parametrize("name", ["look", "write", "nothing"])
async def test_the_event_loop_runs_between_calls_with_large_arguments(hand_in: object, name: str) -> None:
    """The work for a call depends on the size of its arguments, and not only on the number of calls."""

    @tool(name="look", effect="none")
    async def look(text: str) -> str:
        """Look."""
        return "seen"

    @tool(name="write")
    async def write(text: str) -> str:
        """Write."""
        return "written"

    raws = [call(name, text=f"{n:0300000}", id=f"c{n}") for n in range(20)]
    async with Engine([look, write]) as engine:
        turns, outcomes = await turns_during(hand_in(engine, raws, Scope()))  # type: ignore[operator]
    assert len(outcomes) == 20
    assert turns >= (18 if name == "nothing" else 36), "the loop must run once per call that is prepared and once per call that runs"


async def turns_during(work: Coroutine[None, None, list[Outcome]]) -> tuple[int, list[Outcome]]:
    """Return the number of turns of the event loop, and what `work` returned."""
    turns, over = 0, False

    async def count_turns() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    returned = await work
    over = True
    await other
    return turns, returned


@pytest.mark.parametrize("hand_in", [together, one_by_one])
async def test_the_event_loop_runs_while_a_large_message_is_added_and_run(hand_in: object) -> None:
    """None of the calls waits for anything, so only the engine itself can yield to the loop."""
    ran: list[int] = []
    async with Engine([counting(ran)]) as engine:
        await engine.call(looks(1)[0])
        turns, outcomes = await turns_during(hand_in(engine, looks(2_000), Scope()))  # type: ignore[operator]
    assert len(outcomes) == 2_000
    assert turns >= 2_000 // 64


@pytest.fixture
def short_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the journal's queue to a few hundred events."""
    monkeypatch.setattr("callgate._journal.commit_batching._MOST_PENDING", 400)
    monkeypatch.setattr("callgate._journal.commit_batching._MANY_PENDING", 100)
    monkeypatch.setattr("callgate._journal.commit_batching._MOST_TOGETHER", 50)


@pytest.mark.usefixtures("short_queue")
async def test_calls_of_a_large_message_wait_while_the_journal_queue_is_full(tmp_path: Path) -> None:
    ran: list[int] = []
    async with Engine([counting(ran)], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        outcomes = await engine.call_many(looks(1_500))
        assert {result_of(outcome).code for outcome in outcomes} == {None}
        assert len(ran) == 1_500


@pytest.mark.usefixtures("short_queue")
async def test_concurrent_calls_wait_while_the_journal_queue_is_full(tmp_path: Path) -> None:
    ran: list[int] = []
    limits = Limits(parallel_calls=20)
    async with Engine([counting(ran)], journal=SqliteJournal(tmp_path / "journal.db"), limits=limits) as engine:
        outcomes = await asyncio.gather(*map(engine.call, looks(1_500)))
        assert {result_of(outcome).code for outcome in outcomes} == {None}


@pytest.mark.usefixtures("short_queue")
async def test_nested_calls_wait_while_the_journal_queue_is_full(tmp_path: Path) -> None:
    ran: list[int] = []

    @tool(effect="none")
    async def outer(context: ToolContext) -> list[str]:
        """Call many."""
        results = await asyncio.gather(*(context.call("look", {"n": n}) for n in range(1_500)))
        return [one.status for one in results]

    async with Engine([counting(ran), outer], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        result = result_of(await engine.call(call("outer")))
    assert set(result.structured) == {"ok"}  # type: ignore[call-overload]


async def test_duplicate_call_ids_are_found_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal calls are found without comparing each pair of calls."""
    compared: list[object] = []

    def counted(value: object) -> bytes:
        compared.append(value)
        return canonical(value)

    ran: list[int] = []
    async with Engine([counting(ran)]) as engine:
        monkeypatch.setattr(emission, "canonical", counted)
        raws = [call("look", n=n // 2, id="same") for n in range(600)]
        outcomes = await engine.call_many(raws)
    assert [result_of(outcome).text for outcome in outcomes] == [f"seen {n // 2}" for n in range(600)]
    assert ran == list(range(300))
    assert len(compared) <= 4 * 600


async def test_a_message_of_very_many_calls_has_a_bounded_number_of_tasks() -> None:
    """Each garbage collection visits all tasks. Calls that wait for others start as those end, with the same order and results."""
    ran: list[int] = []
    most = 0

    @tool
    async def write(n: int) -> str:
        """Write."""
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(0)
        ran.append(n)
        return "written"

    async with Engine([write]) as engine:
        outcomes = await engine.call_many([call("write", n=n, id=f"c{n}") for n in range(2_500)])
    assert {result_of(outcome).status for outcome in outcomes} == {"ok"}
    assert ran == list(range(2_500))
    assert most <= 1_100


async def test_a_message_runs_as_many_calls_at_once_as_the_parallel_limit_allows() -> None:
    met = asyncio.Barrier(1_500)

    @tool(effect="none")
    async def meet() -> str:
        """Return when all calls have begun."""
        await met.wait()
        return "met"

    async with Engine([meet], limits=Limits(parallel_calls=1_500)) as engine:
        outcomes = await engine.call_many([call("meet", id=f"c{n}") for n in range(1_500)])
    assert {result_of(outcome).status for outcome in outcomes} == {"ok"}
