"""One query returns the entry of each call: final arguments, result, cause and phase, whatever the outcome of the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Ask, Deny, Engine, EventQuery, MemoryJournal, Modify, RawCall, Scope, SqliteJournal, ToolContext, tool
from callgate.agent import Agent
from callgate.protocols import Allow, Verdict
from callgate.recorded_calls import ToolCallEntry, find_tool_calls
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import Script, says
from tests.agent.scripted_model import call as model_call
from tests.engine_calls import call
from tests.host_fakes import Hider


@tool
async def pay(to: str, cents: int = 1) -> str:
    """Pay."""
    return f"paid {cents} to {to}"


class Judge:
    async def decide(self, call: ValidatedCall) -> Verdict:
        match call.arguments:
            case {"to": "mallory"}:
                return Deny(reason="not mallory", rule="no")
            case {"to": "bob"}:
                return Ask(question="bob?", rule="perhaps")
            case {"to": "ann", "cents": int(cents)} if cents > 10:
                return Modify(arguments={"to": "ann", "cents": 10}, reason="ten at most", rule="cap")
        return Allow(rule="fine")


CALLS = [
    call("pay", id="changed", to="ann", cents="99"),
    call("pay", id="denied", to="mallory"),
    call("pay", id="asked", to="bob"),
    call("pay", id="invalid", to=5),
    call("nope", id="unknown", x=1),
    RawCall(name="pay", id="broken", arguments='{"to": '),
]


async def entries_of(journal: Any) -> dict[str, ToolCallEntry]:
    async with Engine([pay], policies=[Judge()], journal=journal) as engine:
        for number, one in enumerate(CALLS):
            await engine.call(one, Scope(run="r", phase=f"phase-{number}", turn=number))
        return {entry.id: entry for entry in find_tool_calls(engine.journal, EventQuery(run="r"))}


@pytest.mark.parametrize("store", ["memory", "file"])
async def test_one_query_returns_the_entry_of_every_call_including_denied_and_invalid_ones(store: str, tmp_path: Path) -> None:
    journal = MemoryJournal() if store == "memory" else SqliteJournal(tmp_path / "journal.db")
    found = await entries_of(journal)
    assert list(found) == [one.id for one in CALLS]
    assert {name: (entry.status, entry.arguments) for name, entry in found.items()} == {
        "changed": ("ok", {"to": "ann", "cents": 10}),
        "denied": ("error", {"to": "mallory", "cents": 1}),
        "asked": ("asked", {"to": "bob", "cents": 1}),
        "invalid": ("error", {"to": 5}),
        "unknown": ("error", {"x": 1}),
        "broken": ("error", None),
    }
    assert [entry.phase for entry in found.values()] == [f"phase-{number}" for number in range(6)]
    assert [verdict.verdict for verdict in found["changed"].verdicts] == ["modify", "allow"]
    assert (found["denied"].verdicts[0].rule, found["denied"].verdicts[0].reason) == ("no", "pay was denied: not mallory")
    classes = {name: entry.result.failure_class for name, entry in found.items() if entry.result is not None}
    assert classes == {
        "changed": None,
        "denied": "denied",
        "invalid": "invalid_parameters",
        "unknown": "unknown_tool",
        "broken": "truncated_arguments",
    }
    assert found["changed"].result is not None
    assert found["changed"].result.data == "paid 10 to ann"
    assert "bob?" in found["asked"].reason
    assert found["broken"].received == '{"to": '
    if store == "file":
        journal = SqliteJournal(tmp_path / "journal.db")
        assert {entry.id: entry for entry in find_tool_calls(journal)} == found
        await journal.close()


async def test_an_entry_names_the_cause_of_its_call() -> None:
    """The cause is the message of its phase, or the call whose tool made it."""

    @tool(effect="none")
    async def outer(context: ToolContext) -> str:
        """Call another tool."""
        return (await context.call("inner", {})).text

    @tool(effect="none")
    async def inner() -> str:
        """Return at once."""
        return "seen"

    script = Script(says("", model_call("outer", {}, id="1")), says("", model_call("outer", {}, id="2")), says("Done."))
    async with Agent(script, tools=[outer, inner]) as agent:
        await agent.run("Go.", scope=Scope(run="r"))
        events = {event.position: event for event in agent.engine.journal.read(run="r")}
        found = find_tool_calls(agent.engine.journal, EventQuery(run="r"))
    assert [(entry.tool, entry.phase) for entry in found] == [("outer", "r/0"), ("inner", "r/0"), ("outer", "r/1"), ("inner", "r/1")]
    causes = [events[entry.caused_by] for entry in found]
    assert [event.kind.partition(".")[0] for event in causes] == ["phase", "call"] * 2
    assert [causes[1].call, causes[3].call] == [found[0].uid, found[2].uid]
    assert [entry.parent for entry in found] == ["", found[0].uid, "", found[2].uid]


async def test_entries_are_filtered_like_events() -> None:
    found = MemoryJournal()
    async with Engine([pay], policies=[Judge()], journal=found) as engine:
        for number in range(5):
            await engine.call(call("pay", to=f"n{number}"), Scope(run="r", turn=number, actor="x" if number % 2 else "y"))
        await engine.call(call("nope"), Scope(run="r", turn=9))

        def turns(**asked: Any) -> list[object]:
            return [(entry.arguments or {}).get("to") for entry in find_tool_calls(found, EventQuery(**asked))]

        assert turns(tool="pay", limit=2) == ["n0", "n1"]
        assert turns(tool="pay", limit=2, newest_first=True) == ["n3", "n4"]
        assert turns(actor="x") == ["n1", "n3"]
        assert turns(kinds=("call.started",)) == [f"n{number}" for number in range(5)]
        assert [entry.tool for entry in find_tool_calls(found, EventQuery(field=("failure_class", "unknown_tool")))] == ["nope"]


async def test_an_entry_contains_no_redacted_value() -> None:
    async with Engine([pay], redactor=Hider()) as engine:
        await engine.call(call("pay", to="hunter2"))
        [entry] = find_tool_calls(engine.journal)
    assert "hunter2" not in repr(entry)
    assert entry.arguments == {"to": "[hidden]", "cents": 1}
