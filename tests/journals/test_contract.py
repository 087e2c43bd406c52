"""Tests of the journal contract, run against every kind of journal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise

import pytest

from callgate import Engine, EventQuery, MemoryJournal, Scope, tool
from callgate.errors import CallgateError, UsageError
from callgate.events import TERMINAL, Draft, Event
from callgate.protocols import Journal
from tests.effect_ledger import Ledger
from tests.engine_calls import call, said


def draft(n: int, *, run: str = "r", call: str = "r/0/0", kind: str = "call.started", parents: tuple[int, ...] = ()) -> Draft:
    return Draft(kind=kind, run=run, call=call, body=json.dumps({"n": n}).encode(), parents=parents)


async def test_positions_increase_and_sequence_numbers_of_a_run_have_no_gaps(journal: Journal) -> None:
    positions = [journal.append(draft(n, run="ab"[n % 2])) for n in range(6)]
    assert positions == [1, 2, 3, 4, 5, 6]
    assert [event.seq for event in journal.read(run="a")] == [1, 2, 3]
    assert [event.seq for event in journal.read(run="b")] == [1, 2, 3]


async def test_an_event_is_read_as_it_was_written(journal: Journal) -> None:
    body = json.dumps({"text": "\u2028\u0000é", "n": 2**53 + 1, "twice": 1}, ensure_ascii=False).encode()
    journal.append(Draft(kind="call.received", run="r", call="c", body=body, attempt=2, parents=()))
    before = list(journal.read())
    await journal.durable(1)
    (event,) = journal.read()
    assert (event.kind, event.run, event.call, event.attempt, event.parents, event.body) == ("call.received", "r", "c", 2, (), body)
    assert (event.at_ns, event.mono, event.seq) == (before[0].at_ns, before[0].mono, before[0].seq)


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"\xff\xfe", b'{"a":1,"a":2}', b"[" * 5_000], ids=["empty", "text", "bytes", "twice", "deep"]
)
async def test_any_bytes_are_stored_as_a_body(journal: Journal, body: bytes) -> None:
    """A redactor may return bytes that are not JSON; the journal must store them anyway."""
    for kind in ("call.received", "call.verdict"):
        await journal.durable(journal.append(Draft(kind=kind, run="r", call="c", body=body)))
    assert [event.body for event in journal.read()] == [body, body]
    assert list(journal.find(EventQuery(tool="x"))) == []


async def test_an_event_of_an_unknown_kind_is_stored(journal: Journal) -> None:
    await journal.durable(journal.append(draft(1, kind="future.thing", call="")))
    assert [event.kind for event in journal.read()] == ["future.thing"]


async def test_read_filters_by_run_call_and_position_and_limits_the_number(journal: Journal) -> None:
    for n in range(6):
        journal.append(draft(n, run="ab"[n % 2], call=f"c{n}"))
    for _ in range(2):
        assert [event.position for event in journal.read(after=4)] == [5, 6]
        assert [event.position for event in journal.read(run="a", limit=2)] == [1, 3]
        assert [event.position for event in journal.read(call="c3")] == [4]
        assert [event.position for event in journal.read(newest_first=True, limit=2)] == [6, 5]
        assert [event.position for event in journal.read(newest_first=True, run="a", after=1)] == [5, 3]
        await journal.durable(6)


async def test_an_event_can_be_read_before_it_is_durable(journal: Journal) -> None:
    position = journal.append(draft(1))
    assert [event.position for event in journal.read()] == [position]
    await journal.durable(position)
    assert [event.position for event in journal.read()] == [position]


async def test_many_concurrent_waits_for_durability_all_return(journal: Journal) -> None:
    await asyncio.gather(*(journal.durable(journal.append(draft(n, call=f"c{n}"))) for n in range(200)))
    assert len(list(journal.read())) == 200
    assert journal.status().written == 200


async def test_an_event_that_cannot_be_encoded_leaves_no_gap(journal: Journal) -> None:
    if journal.strength == "memory":
        pytest.skip("memory encodes a body when somebody reads it")

    class Broken:
        def encode(self) -> bytes:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        journal.append(Draft(kind="k", run="r", body=Broken()))
    await journal.durable(journal.append(draft(1)))
    assert [(event.position, event.seq) for event in journal.read()] == [(1, 1)]


async def test_a_second_end_of_a_call_is_refused_by_the_store(journal: Journal) -> None:
    if journal.strength == "memory":
        pytest.skip("memory keeps no call from ending twice: nothing survives there that could be wrong")
    await journal.durable(journal.append(draft(1, kind="call.completed")))
    with pytest.raises(Exception, match=r"(?i)unique"):
        await journal.durable(journal.append(draft(2, kind="call.aborted")))
    with pytest.raises(Exception, match=r"(?i)unique"):
        journal.append(draft(3, call="other"))
    assert "unique" in journal.status().failure.lower()


@pytest.mark.parametrize("kind", sorted(TERMINAL))
async def test_many_calls_end_once_each(journal: Journal, kind: str) -> None:
    for n in range(3):
        await journal.durable(journal.append(draft(n, kind=kind, call=f"c{n}")))
    assert len(list(journal.find(EventQuery(kinds=(kind,))))) == 3


async def test_status_reports_the_store_and_the_number_of_events(journal: Journal) -> None:
    await journal.durable(journal.append(draft(1)))
    status = journal.status()
    assert (status.store, status.strength) in {("memory", "memory"), ("sqlite", "full"), ("postgres", "full")}
    assert (status.written, status.failure) == (1, "")


async def test_a_reopened_journal_has_its_events_and_continues_the_sequence(place: Callable[[], Journal]) -> None:
    first = place()
    for n in range(3):
        first.append(draft(n))
    before = list(first.read())
    await first.close()
    second = place()
    assert [(event.position, event.body, event.at_ns) for event in second.read()] == [(e.position, e.body, e.at_ns) for e in before]
    assert second.append(draft(3)) == 4
    assert [event.seq for event in second.read()] == [1, 2, 3, 4]
    await second.close()


async def test_a_closed_journal_refuses_events(place: Callable[[], Journal]) -> None:
    journal = place()
    await journal.close()
    await journal.close()
    if journal.strength != "memory":
        with pytest.raises(CallgateError, match="closed"):
            journal.append(draft(1))


# The events of an engine


@tool
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@tool(effect="none")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


async def a_few_calls(journal: Journal) -> list[Event]:
    """Make a message of three calls, a refused call, and the same call twice."""
    async with Engine([pay, look], journal=journal, run="work") as engine:
        scope = Scope(run="work", conversation="talk", actor="ann")
        await engine.call_many([call("pay", id="1", to="a"), call("look", id="2", at="b"), call("nope", id="3")], scope)
        await engine.call(call("pay", id="1", to="a"), scope)
        return list(journal.read())


async def test_the_events_of_calls_are_the_same_in_every_journal(journal: Journal) -> None:
    """The test compares the order within a call, the causes, and the single end of each call."""
    events = await a_few_calls(journal)
    by_call: dict[str, list[Event]] = {}
    for event in events:
        if event.call and event.run == "work":
            by_call.setdefault(event.call, []).append(event)
    kinds = {call: [event.kind for event in of_call] for call, of_call in by_call.items()}
    assert kinds["work/0/0"] == ["call.received", "call.started", "call.completed"]
    assert kinds["work/0/1"] == ["call.received", "call.started", "call.completed"]
    assert kinds["work/0/2"] == ["call.received", "call.completed"]
    assert kinds["work/0/3"][0] == "call.received"
    assert "call.started" not in kinds["work/0/3"]
    for of_call in by_call.values():
        assert sum(event.kind in TERMINAL for event in of_call) <= 1
        assert all(later.parents == (earlier.position,) for earlier, later in pairwise(of_call) if later.kind != "call.replayed")
    assert [event.position for event in events] == list(range(1, len(events) + 1))


async def test_a_repeated_call_is_replayed_from_the_journal_after_a_restart(place: Callable[[], Journal], ledger: Ledger) -> None:
    @tool
    async def charge(to: str) -> str:
        """Charge."""
        ledger.write(to)
        return f"charged {to}"

    for expected in (False, True):
        async with Engine([charge], journal=place()) as engine:
            result = await said(engine, call("charge", id="c1", key="k", to="ann"), Scope(run="order"))
            assert (result.text, result.metadata.replayed) == ("charged ann", expected)
    assert ledger.lines() == ["ann"]


async def test_a_journal_written_by_two_engines_in_turn_verifies(place: Callable[[], Journal]) -> None:
    for run in ("one", "two"):
        async with Engine([pay], journal=place(), run=run) as engine:
            await said(engine, call("pay", to=run), Scope(run="same"))
    journal = place()
    events = list(journal.read(run="same"))
    assert [event.seq for event in events] == list(range(1, 7))
    if journal.strength != "memory":
        assert journal.verify() is None  # type: ignore[attr-defined]
        assert journal.verify(tail=3) is None  # type: ignore[attr-defined]
        first, second = {event.epoch for event in events[:3]}, {event.epoch for event in events[3:]}
        assert len(first) == len(second) == 1
        assert min(second) > max(first)
    await journal.close()


async def test_one_journal_object_serves_one_engine_at_a_time(journal: Journal) -> None:
    async with Engine([pay], journal=journal) as first:
        assert (await said(first, call("pay", to="ann"), Scope(run="order"))).text == "paid ann"
        second = Engine([pay], journal=journal)
        for attempt in (second.start(), second.call(call("pay", to="ben"), Scope(run="order")), second.start()):
            with pytest.raises(UsageError, match=r"is used by another engine that is not closed\. Close that one, or give each engine a"):
                await attempt
        assert (await said(first, call("pay", to="eva"), Scope(run="order"))).text == "paid eva"
        assert [event.kind for event in journal.read(run="order")].count("call.completed") == 2
    late = await said(second, call("pay", to="ben"), Scope(run="order"))
    assert late.text == "paid ben" or late.failure_class == "record_failed", "a stored journal is closed with its engine"


def test_a_journal_in_memory_is_free_when_its_engine_is_gone_or_its_event_loop_is_closed() -> None:
    journal = MemoryJournal()

    async def pay_once(engine: Engine, to: str) -> str:
        return (await said(engine, call("pay", to=to), Scope(run="order"))).text

    async def pay_with_two_engines() -> list[str]:
        return [await pay_once(Engine([pay], journal=journal), to) for to in ("ann", "ben")]

    assert asyncio.run(pay_with_two_engines()) == ["paid ann", "paid ben"]
    never_closed = Engine([pay], journal=journal)
    assert asyncio.run(pay_once(never_closed, "eva")) == "paid eva"
    assert asyncio.run(pay_once(Engine([pay], journal=journal), "tom")) == "paid tom"
