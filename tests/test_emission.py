"""All calls of one message: concurrent where possible, in order where necessary, with one outcome each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import AbortController, Aborted, Engine, Limits, MemoryJournal, RawCall, Scope, tool
from callgate._abort_signals import AbortSignal
from callgate._pipeline import call_order as planning
from callgate._pipeline.call_order import CallOrder, Footprint, may_run_beside
from callgate.emission import EndedCall
from callgate.errors import CallDenied, UsageError
from callgate.tools import TouchedKeys, resource_conflicts
from tests.engine_calls import bodies, call, kinds, result_of


class Trace:
    """Records when each call begins and ends, and which calls run at the same time."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.running: set[str] = set()
        self.together: set[frozenset[str]] = set()

    async def visit(self, name: str, turns: int = 5) -> str:
        self.running.add(name)
        self.events.append(f"+{name}")
        for _ in range(turns):
            self.together.add(frozenset(self.running))
            await asyncio.sleep(0)
        self.running.remove(name)
        self.events.append(f"-{name}")
        return name

    def met(self, one: str, other: str) -> bool:
        return any({one, other} <= group for group in self.together)


def tools_over(trace: Trace) -> list[Any]:
    @tool(effect="none")
    async def read(name: str) -> str:
        """Read an undeclared resource."""
        return await trace.visit(name)

    @tool(effect="none", reads="file:{path}")
    async def read_file(name: str, path: str) -> str:
        """Read a file."""
        return await trace.visit(name)

    @tool(effect="idempotent", writes="file:{path}")
    async def write_file(name: str, path: str) -> str:
        """Write a file."""
        return await trace.visit(name)

    @tool
    async def act(name: str) -> str:
        """Act on the world."""
        return await trace.visit(name)

    return [read, read_file, write_file, act]


async def run(trace: Trace, *calls: RawCall, **settings: Any) -> list[str]:
    async with Engine(tools_over(trace), **settings) as engine:
        return [result_of(outcome).text for outcome in await engine.call_many(calls)]


async def test_reads_run_concurrently_and_results_keep_their_order() -> None:
    trace = Trace()
    assert await run(trace, *(call("read", name=name) for name in "abc")) == ["a", "b", "c"]
    assert trace.met("a", "b")
    assert trace.met("a", "c")


async def test_a_call_added_out_of_order_is_held_until_earlier_calls_are_added() -> None:
    trace, asked = Trace(), list[int]()

    def refuse_none(number: int) -> None:
        asked.append(number)

    async with Engine(tools_over(trace)) as engine:
        emission = engine.emission()
        assert emission.add(call("act", name="c"), position=2, refusal=refuse_none) == 2
        assert emission.leave_out(1) == 1
        assert (emission.next_position, asked) == (0, [])
        assert emission.add(call("act", name="a"), position=0, refusal=refuse_none) == 0
        assert (emission.next_position, asked, emission.accepted_calls) == (3, [0, 1], 2)
        assert emission.add(call("act", name="z"), position=0) == 0  # this position is already taken
        ends = await emission.seal_with_ends()
    assert [end.outcome and result_of(end.outcome).text for end in ends] == ["a", None, "c"]
    assert trace.events == ["+a", "-a", "+c", "-c"]


async def test_reopen_withdraws_a_held_call_and_reports_a_call_that_was_already_taken() -> None:
    async with Engine(tools_over(Trace())) as engine:
        emission = engine.emission(early=False)
        emission.add(call("read", name="b"), position=1)
        assert not emission.reopen(1)
        emission.add(call("read", name="a"), position=0)
        assert emission.next_position == 1
        assert emission.reopen(0)
        assert [result_of(outcome).text for outcome in await emission.seal()] == ["a"]


async def test_a_call_that_already_ended_elsewhere_keeps_its_position() -> None:
    async with Engine(tools_over(Trace())) as engine:
        emission = engine.emission()
        before = EndedCall(uid="run-1/0/0", position=7, arguments=b"{}")
        emission.leave_out(ended=before)
        emission.add(call("read", name="a"))
        assert [result_of(outcome).text for outcome in await emission.seal()] == ["a"]
        with pytest.raises(UsageError, match="This emission is over"):
            emission.leave_out()
        assert emission.ends_so_far[0] == before
        assert emission.ends_so_far[1].arguments == b'{"name":"a"}'


async def test_a_call_with_an_undeclared_effect_runs_alone() -> None:
    trace = Trace()
    await run(trace, call("read", name="a"), call("act", name="b"), call("read", name="c"))
    assert trace.events == ["+a", "-a", "+b", "-b", "+c", "-c"]


async def test_declared_writes_of_different_files_run_concurrently() -> None:
    trace = Trace()
    await run(trace, call("write_file", name="a", path="x"), call("write_file", name="b", path="y"))
    assert trace.met("a", "b")


@pytest.mark.parametrize("second", ["write_file", "read_file"])
async def test_calls_that_conflict_over_a_resource_run_in_emission_order(second: str) -> None:
    trace = Trace()
    await run(trace, call("write_file", name="a", path="dir"), call(second, name="b", path="dir/x"))
    assert trace.events == ["+a", "-a", "+b", "-b"]


@pytest.mark.parametrize(
    "writes",
    [
        lambda arguments, scope: "file:x",
        lambda arguments, scope: [42],
        lambda arguments, scope: ["file:y", None],
        lambda arguments, scope: b"file:x",
    ],
    ids=["one key", "a number", "a key and nothing", "bytes"],
)
async def test_a_writes_function_may_return_one_key_and_an_invalid_value_declares_nothing(writes: Any) -> None:
    """One text is one key, as in a declaration. A call with an invalid value is treated as touching every resource."""
    trace = Trace()

    @tool(writes=writes)
    async def put(name: str) -> str:
        """Put something somewhere."""
        return await trace.visit(name)

    async with Engine([*tools_over(trace), put]) as engine:
        outcomes = await engine.call_many([call("put", name="a"), call("read_file", name="b", path="x")])
    assert [result_of(outcome).status for outcome in outcomes] == ["ok", "ok"]
    assert trace.events == ["+a", "-a", "+b", "-b"]


async def test_a_read_without_declared_resources_waits_for_an_earlier_write() -> None:
    trace = Trace()
    await run(trace, call("write_file", name="a", path="x"), call("read", name="b"))
    assert trace.events == ["+a", "-a", "+b", "-b"]


NEVER_RUN = {
    "unknown": call("nope"),
    "invalid": call("act", wrong=1),
    "no JSON": RawCall(name="act", arguments="{", id=""),
    "an odd id": call("act", id="x" * 300, name="x"),
}


@pytest.mark.parametrize("early", [True, False], ids=["early", "sealed"])
@pytest.mark.parametrize("between", NEVER_RUN.values(), ids=NEVER_RUN)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (call("act", name="a"), call("act", name="b")),
        (call("act", name="a"), call("read", name="b")),
        (call("read", name="a"), call("act", name="b")),
        (call("write_file", name="a", path="x"), call("read_file", name="b", path="x")),
        (call("read_file", name="a", path="x"), call("write_file", name="b", path="x")),
    ],
    ids=["effects", "read after", "read before", "file read after", "file read before"],
)
async def test_conflicting_calls_around_a_call_that_never_runs_keep_their_order(
    one: RawCall, other: RawCall, between: RawCall, early: bool
) -> None:
    for message in ([one, between, other], [between, one, between, between, other], [one, call("read", name="r"), between, other]):
        trace = Trace()
        async with Engine(tools_over(trace)) as engine:
            emission = engine.emission(early=early)
            for raw in message:
                emission.add(raw)
            await emission.seal()
        assert [event for event in trace.events if event[1] != "r"] == ["+a", "-a", "+b", "-b"]


async def test_conflicting_calls_around_a_call_refused_by_the_loop_keep_their_order() -> None:
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        emission = engine.emission()
        emission.add(call("act", name="a"))
        emission.add(call("act", name="x"), refusal=CallDenied("The same once more."))
        emission.add(call("act", name="b"))
        outcomes = await emission.seal()
    assert [result_of(outcome).status for outcome in outcomes] == ["ok", "error", "ok"]
    assert trace.events == ["+a", "-a", "+b", "-b"]


async def test_a_failing_call_does_not_cancel_other_calls() -> None:
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        outcomes = await engine.call_many([call("nope"), call("read", name="a"), call("read", wrong=1), call("act", name="b")])
    assert [result_of(outcome).status for outcome in outcomes] == ["error", "ok", "error", "ok"]


async def test_a_call_without_a_name_aborts_the_message_before_any_tool_runs() -> None:
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        outcomes = await engine.call_many([call("act", name="a"), RawCall(name="")])
        ends = [kind for kind in kinds(engine) if kind in ("call.completed", "call.aborted")]
    assert isinstance(outcomes[1], Aborted)
    assert result_of(outcomes[0]).failure_class == "not_started"
    assert trace.events == []
    assert sorted(ends) == ["call.aborted", "call.completed"]


async def test_calls_that_have_not_started_before_a_stop_never_start() -> None:
    ran = []
    async with Engine() as engine:

        @tool
        async def act(n: int) -> str:
            """Act, and be stopped."""
            ran.append(n)
            engine.control.stop("c")
            return "done"

        engine.register(act)
        outcomes = await engine.call_many([call("act", n=1), call("act", n=2)], Scope(conversation="c"))
    assert isinstance(outcomes[0], Aborted)
    assert outcomes[0].status == "stopped_by_user"
    assert result_of(outcomes[1]).failure_class == "not_started"
    assert ran == [1]


async def test_calls_with_equal_empty_or_unusual_ids_get_one_result_each() -> None:
    trace = Trace()
    ids = ["x", "x", "", "", "id\r\nX-Evil: 1", "../../etc/x", "$.a') = 1 OR ('1'='1"]
    async with Engine(tools_over(trace)) as engine:
        outcomes = await engine.call_many([call("act", id=one, name=f"n{i}") for i, one in enumerate(ids)])
    answered = [result_of(outcome).id for outcome in outcomes]
    assert [given or made for given, made in zip(ids, answered, strict=True)] == answered
    assert len({*answered[2:4]} - {"", *ids}) == 2
    assert [result_of(outcome).text for outcome in outcomes] == [f"n{i}" for i in range(len(ids))]
    assert len({result_of(outcome).uid for outcome in outcomes}) == len(ids)


async def test_a_non_text_id_is_converted_to_text_and_a_too_long_id_is_refused() -> None:
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        raws = [RawCall(name="act", id=one, arguments=f'{{"name": "{n}"}}') for n, one in enumerate([True, 1, None, "x" * 300])]  # type: ignore[arg-type]
        results = [result_of(outcome) for outcome in await engine.call_many(raws)]
    assert [result.id for result in results[:2]] == ["True", "1"]
    assert results[2].id.startswith("call_")
    assert [result.code for result in results] == [None, None, None, "bad_call_id"]


@pytest.mark.parametrize("odd", ["caf\ud800", "\ud800" * 5_000, "é" * 5_000], ids=["no Unicode", "no Unicode and long", "long"])
async def test_calls_with_invalid_unicode_or_long_ids_and_names_are_answered_and_recorded(odd: str) -> None:
    """Characters that UTF-8 cannot encode are escaped, and long text is truncated. The other calls of the message are not affected."""
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        emission = engine.emission(Scope(deliberate=True, allowed_tools=frozenset({"act"})))
        emission.add(call("act", name="a"))
        emission.add(call("act", id=odd, name="b"))
        emission.add(call(odd, id="x", name="c"))
        emission.add(call(odd, id="y", name="c"), refusal=CallDenied("The same once more."))
        emission.add(call("act", name="d"))
        results = [result_of(outcome) for outcome in await emission.seal()]
        record = b"".join(event.body for event in engine.journal.read())
    refused = "bad_call_id" if len(odd) > 256 else None
    assert [one.code for one in results] == [None, refused, "blocked_by_deliberate_tool_mode", "policy_denied", None]
    for text in (results[1].id, results[2].name, results[2].text, results[3].name, results[3].text, record.decode()):
        assert len(text.encode()) < 100_000
    assert (trace.events[:2], trace.events[-2:]) == (["+a", "-a"], ["+d", "-d"])


async def test_equal_calls_in_one_message_both_run_and_a_repeated_message_is_replayed() -> None:
    trace = Trace()
    message = [call("act", id="x", name="a"), call("act", id="y", name="a")]
    async with Engine(tools_over(trace)) as engine:
        await engine.call_many(message)
        again = await engine.call_many(message)
    assert trace.events == ["+a", "-a", "+a", "-a"]
    assert all(result_of(outcome).metadata.replayed for outcome in again)


async def test_concurrent_calls_do_not_exceed_the_parallel_calls_limit() -> None:
    trace = Trace()
    await run(trace, *(call("read", name=str(n)) for n in range(20)), limits=Limits(parallel_calls=3))
    assert max(len(group) for group in trace.together) == 3


async def test_a_tool_may_have_its_own_parallel_limit() -> None:
    trace = Trace()

    @tool(effect="none", parallel=1)
    async def one_by_one(name: str) -> str:
        """One at a time."""
        return await trace.visit(name)

    async with Engine([one_by_one]) as engine:
        await engine.call_many([call("one_by_one", name=name) for name in "abc"])
    assert trace.events == ["+a", "-a", "+b", "-b", "+c", "-c"]


async def test_five_thousand_calls_get_five_thousand_results_in_order() -> None:
    @tool(effect="none")
    async def echo(text: str) -> str:
        """Echo."""
        return text

    async with Engine([echo]) as engine:
        outcomes = await engine.call_many([call("echo", text=str(n)) for n in range(5000)])
    assert [result_of(outcome).text for outcome in outcomes] == [str(n) for n in range(5000)]


async def test_a_read_starts_before_the_message_is_complete_and_an_effect_does_not() -> None:
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        emission = engine.emission()
        emission.add(call("read", name="a"))
        emission.add(call("act", name="b"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert trace.events == ["+a", "-a"]
        emission.add(call("read", name="c"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert trace.events == ["+a", "-a"]
        outcomes = await emission.seal()
    assert [result_of(outcome).text for outcome in outcomes] == ["a", "b", "c"]
    assert trace.events == ["+a", "-a", "+b", "-b", "+c", "-c"]


async def test_early_start_can_be_turned_off() -> None:
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        emission = engine.emission(early=False)
        emission.add(call("read", name="a"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert trace.events == []
        await emission.seal()
    assert trace.events == ["+a", "-a"]


async def test_a_call_closed_only_by_the_end_of_the_message_does_not_start_early() -> None:
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        emission = engine.emission()
        emission.add(RawCall(name="read", arguments='{"name": "a"}', closed="finished"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert trace.events == []
        await emission.discard("the stream dropped")
    assert trace.events == []


async def test_discarding_a_message_ends_early_started_calls_and_records_the_discard() -> None:
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        emission = engine.emission()
        emission.add(call("read", name="a"))
        emission.add(call("act", name="b"))
        await emission.discard("the stream dropped")
        assert "emission.discarded" in kinds(engine)
        with pytest.raises(UsageError, match="over"):
            emission.add(call("read", name="c"))
    assert "+b" not in trace.events


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("signal", [None, AbortController().signal], ids=["the engine's signal", "the host's"])
async def test_a_garbage_collected_message_ends_its_calls_on_record_and_warns_the_host(early: bool, signal: AbortSignal | None) -> None:
    """Each call has one terminal event even if nobody seals, discards or closes."""
    trace = Trace()
    async with Engine(tools_over(trace)) as engine:
        emission = engine.emission(Scope(run="r"), early=early, signal=signal)
        emission.add(call("act", name="a"))
        emission.add(call("read", name="b"))
        with pytest.warns(ResourceWarning, match="A message of 2 calls was neither sealed nor discarded"):
            del emission
        await asyncio.sleep(0)
        ends = [event.call for event in engine.journal.read(run="r") if event.kind == "call.completed"]
        assert sorted(ends) == ["r/0/0", "r/0/1"]
        assert [body["failure_class"] for body in bodies(engine, "call.completed")] == ["not_started"] * 2
        assert len(bodies(engine, "emission.discarded")) == 1
    assert trace.events == []


async def test_a_message_garbage_collected_before_the_engine_closes_records_its_end() -> None:
    trace, journal = Trace(), MemoryJournal()
    engine = Engine(tools_over(trace), journal=journal)
    emission = engine.emission(Scope(run="r"), early=False)
    emission.add(call("act", name="a"))
    with pytest.warns(ResourceWarning, match="neither sealed nor discarded"):
        del emission
    await engine.close()
    assert [event.kind for event in journal.read(run="r")] == ["call.received", "call.completed", "emission.discarded"]


async def test_closing_the_engine_ends_an_open_message() -> None:
    trace, journal = Trace(), MemoryJournal()
    async with Engine(tools_over(trace), journal=journal) as engine:
        emission = engine.emission(Scope(run="r"), early=False)
        emission.add(call("act", name="a"))
    assert [event.kind for event in journal.read(run="r")] == ["call.received", "call.completed"]
    with pytest.warns(ResourceWarning, match="neither sealed nor discarded"):
        del emission


async def test_cancelling_the_caller_ends_every_call_of_the_message() -> None:
    started = asyncio.Event()

    @tool(effect="none")
    async def hang() -> None:
        """Hang."""
        started.set()
        await asyncio.Event().wait()

    async with Engine([hang]) as engine:
        task = asyncio.create_task(engine.call_many([call("hang"), call("hang")]))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert kinds(engine).count("call.completed") == 2


steps = st.lists(st.sampled_from(["a", "b", "a:", "/", "ab"]), max_size=5).map("".join)
keys = st.frozensets(st.builds("{}{}".format, st.sampled_from(["file:", "db:", "file", "/", ""]), steps), min_size=1, max_size=3)
footprints = st.builds(
    Footprint,
    st.booleans(),
    st.none() | st.builds(TouchedKeys, st.just(frozenset()) | keys, st.just(frozenset()) | keys),
).map(lambda f: Footprint(f.reads_only, TouchedKeys(f.touched.reads, frozenset()) if f.reads_only and f.touched else f.touched))


@pytest.mark.parametrize("most", [0, 1, 2, 32])
@given(st.lists(footprints, max_size=12))
def test_calls_that_may_not_run_concurrently_are_always_ordered(most: int, calls: list[Footprint]) -> None:
    """The later call waits for the earlier one, directly or through others, whatever the limit on directly named calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("callgate._pipeline.call_order._MOST_NAMED", most)
        before = waited_for(calls)
    for later in range(len(calls)):
        for earlier in range(later):
            if not may_run_beside(calls[earlier], calls[later]):
                assert earlier in before[later]


@given(st.lists(footprints, max_size=12))
def test_a_call_of_a_small_message_waits_only_for_conflicting_calls_or_barriers(calls: list[Footprint]) -> None:
    """A call is not ordered through other calls: it waits only for calls that it conflicts with, or for a barrier in between."""
    plan = CallOrder()
    for index, one in enumerate(calls):
        for earlier in plan.add(index, one):
            assert calls[earlier].touched is None or not may_run_beside(one, calls[earlier])


def waited_for(calls: list[Footprint]) -> list[set[int]]:
    """Return for each call all calls that end before it starts."""
    plan = CallOrder()
    before: list[set[int]] = []
    for index, one in enumerate(calls):
        waits = plan.add(index, one)
        assert all(earlier < index for earlier in waits)
        before.append(set(waits).union(*(before[earlier] for earlier in waits)))
    return before


class Steps:
    """Counts the steps of planning: nodes of the key tree that are visited, and calls that are compared there."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        steps, place = self, resource_conflicts._KeyNode
        below: Any = vars(place)["below"]

        class Counted(place):  # type: ignore[valid-type, misc]
            __slots__ = ()

            @property
            def below(self) -> Any:
                steps.taken += 1 + len(self.numbers)
                return below.__get__(self)

            @below.setter
            def below(self, value: Any) -> None:
                below.__set__(self, value)

        patch.setattr(resource_conflicts, "_KeyNode", Counted)
        patch.setattr(planning, "_waits_for", self._count(planning._waits_for))

    def _count(self, waits_for: Any) -> Any:
        def counted(earlier: list[int], index: int) -> set[int]:
            self.taken += 1 + len(earlier)
            return waits_for(earlier, index)  # type: ignore[no-any-return]

        return counted


def effect(*writes: str, reads: tuple[str, ...] = ()) -> Footprint:
    return Footprint(False, TouchedKeys(frozenset(reads), frozenset(writes)))


def read(*keys: str) -> Footprint:
    return Footprint(True, TouchedKeys(frozenset(keys)) if keys else None)


@pytest.mark.parametrize(
    "calls",
    [
        [read(f"file:{n}") for n in range(4750)] + [effect(f"file:{n}") for n in range(250)],
        [read("file:") for _ in range(4750)] + [effect(f"file:{n}") for n in range(250)],
        [read() for _ in range(2500)] + [effect(f"file:{n}") for n in range(2500)],
        [effect(f"file:{n}/a/b/c") for n in range(5000)],
        [effect(f"file:{n}") for n in range(2500)] + [read("file:") for _ in range(2500)],
        [effect(f"file:{n}") for n in range(2500)] + [read() for _ in range(2500)],
        [one for n in range(2500) for one in (effect(f"file:{n}"), read("file:"))],
        [one for n in range(2500) for one in (effect(f"file:{n}"), read())],
        [effect("file:" + "a/" * 400_000), effect("file:" + "a/" * 400_001)],
        [effect("file:a", reads=("file:",)) for _ in range(5000)],
    ],
    ids=["others", "above", "free", "writes", "read all", "then free", "in turn", "free in turn", "deep", "one file"],
)
def test_planning_a_message_takes_steps_in_proportion_to_its_number_of_calls(
    calls: list[Footprint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps grow neither with the square of the number of calls nor with the length of their keys."""
    steps = Steps(monkeypatch)
    plan = CallOrder()
    waits = [plan.add(index, one) for index, one in enumerate(calls)]
    assert steps.taken <= 1_000 + 200 * len(calls)
    assert sum(map(len, waits)) <= 50 * len(calls)
