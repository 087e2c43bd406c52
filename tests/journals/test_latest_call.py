"""A conversation's latest successful call is found among the events of its calls, in every kind of journal."""

from __future__ import annotations

import asyncio

from callgate import Engine, MemoryJournal, RawCall, Scope, tool
from callgate.calls import CurrentToolCall
from tests.engine_calls import call
from tests.journals.conftest import Open


@tool
async def pay(to: str, cents: int = 1) -> str:
    """Pay."""
    if to == "nobody":
        raise ValueError("there is no such person")
    return f"paid {to}"


async def latest(engine: Engine, conversation: str) -> CurrentToolCall | None:
    return await asyncio.to_thread(engine.current_tool_call, conversation)


async def test_the_latest_success_is_known_in_whatever_run_it_was(place: Open) -> None:
    """Also to the next engine, and nothing is written for it but the calls themselves."""
    async with Engine([pay], journal=place()) as engine:
        for run, conversation, to in (("1", "talk", "ann"), ("2", "talk", "bob"), ("3", "other", "carl"), ("1", "talk", "nobody")):
            raw = RawCall(name="pay", id=f"{run}{to}", arguments=f'{{"to":"{to}","cents":"5"}}', reasoning=f"{to} is owed")
            await engine.call(raw, Scope(run=run, conversation=conversation))
        found = await latest(engine, "talk")
        assert found is not None
        assert (found.uid, found.text, found.parameters, found.reasoning) == ("2/0/0", "paid bob", {"to": "bob", "cents": 5}, "bob is owed")
        assert await latest(engine, "silent") is None
        assert await latest(engine, "") is None
    journal = place()
    assert {event.run for event in journal.read()} == {"1", "2", "3"}
    async with Engine([pay], journal=journal) as engine:
        assert await latest(engine, "talk") == found


async def test_a_repeated_call_is_the_latest_one_with_the_arguments_of_the_first(place: Open) -> None:
    async with Engine([pay], journal=place()) as engine:
        scope = Scope(run="r", conversation="talk")
        for to, key in (("ann", "k1"), ("bob", "k2"), ("ann", "k1")):
            await engine.call(call("pay", to=to, key=key), scope)
        found = await latest(engine, "talk")
        assert found is not None
        assert (found.uid, found.metadata.replayed, found.parameters) == ("r/0/2", True, {"to": "ann", "cents": 1})


async def test_conversations_whose_names_a_redactor_changes_are_not_taken_for_each_other() -> None:
    class NoNames:
        def redact(self, body: bytes) -> bytes:
            return body.replace(b"ann", b"[name]").replace(b"bob", b"[name]")

    async with Engine([pay], redactor=NoNames()) as engine:
        await engine.call(call("pay", to="carl"), Scope(conversation="with ann"))
        assert [engine.current_tool_call(name) for name in ("with ann", "with bob")] == [None, None]


async def test_a_journal_in_memory_that_forgot_events_still_finds_the_latest_call() -> None:
    async with Engine([pay], journal=MemoryJournal(most=64)) as engine:
        for number in range(60):
            await engine.call(call("pay", to=f"p{number}", id=str(number)), Scope(conversation=f"c{number % 3}"))
            found = engine.current_tool_call(f"c{number % 3}")
            assert found is not None
            assert found.text == f"paid p{number}"
        assert engine.current_tool_call("c0") is not None
