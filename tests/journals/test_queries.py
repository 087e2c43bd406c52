"""Tests of journal queries: every store returns what the reference definition returns, for written and for queued events."""

from __future__ import annotations

import pytest

from callgate import Engine, EventQuery, Scope, tool
from callgate.event_queries import select
from callgate.events import Draft, Event
from callgate.protocols import Journal
from tests.engine_calls import call

OLD_NS, NEW_NS = 0, 2**62


@tool
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@tool(effect="none")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


async def recorded(journal: Journal) -> list[Event]:
    """Record two actors, two known tools and an unknown one, two runs and one message; the engine stays open for more queries."""
    engine = Engine([pay, look], journal=journal)
    for run, actor in (("one", "ann"), ("two", "bob")):
        scope = Scope(run=run, conversation="talk", actor=actor, principal=f"{actor}'s client")
        await engine.call_many([call("pay", id="1", to="a"), call("functions.look", id="2", at="b"), call("nope", id="3")], scope)
    await engine.call(call("look", id="4", at="c"), Scope(run="one"))
    return list(journal.read())


QUERIES = [
    EventQuery(),
    EventQuery(run="one"),
    EventQuery(run="none"),
    EventQuery(run="one", after=4, limit=3),
    EventQuery(run="one", before=9, newest_first=True, limit=3),
    EventQuery(call="two/0/1"),
    EventQuery(calls=("two/0/1", "one/0/0", "nobody's")),
    EventQuery(tool="pay"),
    EventQuery(tool="look"),
    EventQuery(tool="nope"),
    EventQuery(tool="functions.look"),
    EventQuery(actor="ann"),
    EventQuery(actor=""),
    EventQuery(tool="look", actor="bob", newest_first=True),
    EventQuery(principal="ann's client"),
    EventQuery(principal=""),
    EventQuery(principal="nobody's"),
    EventQuery(principal="bob's client", tool="look", kinds=("call.completed",), field=("status", "ok"), newest_first=True, limit=1),
    EventQuery(conversation="talk"),
    EventQuery(conversation="talk", actor="bob", newest_first=True, limit=3),
    EventQuery(conversation="talk", kinds=("call.completed",), field=("status", "ok"), newest_first=True, limit=1),
    EventQuery(conversation="talk", run="one", caused_by=1),
    EventQuery(conversation=""),
    EventQuery(conversation="nobody's"),
    EventQuery(kinds=("call.completed",)),
    EventQuery(kinds=("call.completed", "call.verdict"), run="two"),
    EventQuery(kinds=("emission.",)),
    EventQuery(kinds=("call.", "hook.failed"), limit=5, newest_first=True),
    EventQuery(since_ns=OLD_NS, until_ns=NEW_NS),
    EventQuery(since_ns=NEW_NS),
    EventQuery(until_ns=OLD_NS),
    EventQuery(field=("status", "ok")),
    EventQuery(field=("status", "ok"), limit=2),
    EventQuery(field=("metadata.attempts", 1), tool="pay"),
    EventQuery(field=("metadata.attempts", True)),
    EventQuery(field=("content.0.text", "paid a")),
    EventQuery(field=("content.7.text", "paid a")),
    EventQuery(caused_by=1),
    EventQuery(caused_by=1, kinds=("call.completed",)),
    EventQuery(caused_by=1, tool="pay", actor="ann"),
    EventQuery(caused_by=99_999),
    EventQuery(limit=0),
    EventQuery(tool="'; DROP TABLE events; --", actor='"'),
]


@pytest.mark.parametrize("query", QUERIES, ids=[repr(query)[11:-1].replace(" ", "") or "all" for query in QUERIES])
async def test_every_store_answers_queries_like_the_reference_implementation(journal: Journal, query: EventQuery) -> None:
    events = await recorded(journal)
    found = list(journal.find(query))
    assert [event.position for event in found] == [event.position for event in select(events, query)]


async def test_queries_return_the_expected_events(journal: Journal) -> None:
    """Checks a few results by hand, as a test of the reference definition itself."""
    await recorded(journal)

    def kinds(query: EventQuery) -> list[tuple[str, str]]:
        return [(event.call, event.kind) for event in journal.find(query)]

    looked = ["call.received", "call.started", "call.completed"]
    assert kinds(EventQuery(tool="look", run="two")) == [("two/0/1", kind) for kind in looked]
    assert {call for call, _ in kinds(EventQuery(actor="ann", run="one"))} == {"one/0/0", "one/0/1", "one/0/2"}
    assert {call for call, _ in kinds(EventQuery(field=("code", "unknown_tool")))} == {"one/0/2", "two/0/2"}
    first = next(iter(journal.find(EventQuery(call="one/0/0"))))
    followed = kinds(EventQuery(caused_by=first.position))
    assert followed[0] == ("one/0/0", "call.started")
    assert ("one/0/0", "call.completed") in followed
    assert ("one/0/1", "call.completed") not in followed


async def test_queries_include_events_that_are_not_yet_written(journal: Journal) -> None:
    """The query runs in the same iteration of the event loop, so no event has been written to the store."""
    body = b'{"name":"pay","scope":{"actor":"ann"}}'
    first = journal.append(Draft(kind="call.received", run="r", call="r/0/0", body=body))
    second = journal.append(Draft(kind="call.started", run="r", call="r/0/0", body=b"{}", parents=(first,)))
    for query in (EventQuery(tool="pay"), EventQuery(actor="ann"), EventQuery(run="r"), EventQuery(call="r/0/0")):
        assert [event.position for event in journal.find(query)] == [first, second]
    third = journal.append(Draft(kind="call.completed", run="r", call="r/0/0", body=b"{}", parents=(second,)))
    assert [event.position for event in journal.find(EventQuery(caused_by=first))] == [second, third]
    assert [event.position for event in journal.find(EventQuery(newest_first=True, limit=2))] == [third, second]
