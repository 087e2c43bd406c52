"""A run is rebuilt from its journal alone, byte for byte; what the journal does not contain is reported."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import DirectoryBlobs, Engine, Limits, MemoryJournal, RawCall, Scope, SqliteJournal, tool
from callgate.agent import Agent, Compaction, ContextRestarts, RunResult, keep_last
from callgate.errors import UsageError
from callgate.event_queries import EventQuery
from callgate.events import Draft
from callgate.messages import Message
from callgate.replay import Replay
from tests.agent.scripted_model import Script, call, says
from tests.canonical_json import canonical
from tests.effect_ledger import Ledger
from tests.host_fakes import Hider
from tests.replay.sample_runs import CALLS, RUN, rules, run_of, script, tools_of

PLANS = st.lists(st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=3), min_size=0, max_size=4)


async def recorded(
    ledger: Ledger, plan: Sequence[Sequence[str]], *, allow: bool = True, **options: Any
) -> tuple[RunResult, Script, Engine]:
    """Return a run of this plan, its model, and the closed engine."""
    engines: list[Engine] = []
    engine = Engine(tools_of(ledger, engines), policies=[rules()], **options)
    engines.append(engine)
    model = script(plan)
    async with engine, Agent(model, engine, instructions=lambda left: f"{left} rounds are left.") as agent:
        result = await run_of(agent, allow=allow)
    return result, model, engine


def same_bytes(result: RunResult, model: Script, replay: Replay) -> None:
    """Assert that the replay has exactly the messages, requests, results and end of the run."""
    assert replay.differences == ()
    assert [canonical(one) for one in replay.messages] == [canonical(one) for one in result.messages]
    assert [canonical(list(one.messages)) for one in replay.passes] == [canonical(seen) for seen in model.seen]
    assert canonical(replay.results) == canonical(result.results)
    assert (replay.end.status, replay.end.turn_status, replay.end.text) == (result.status, result.turn_status, result.text)
    assert replay.end.reason == result.reason


async def test_every_kind_of_call_is_rebuilt_exactly_without_running_a_tool(ledger: Ledger) -> None:
    """The rebuilt run has the same bytes."""
    plan = [["ok", "denied", "failed"], ["coerced", "unknown", "invalid"], ["asked", "ok"], ["malformed", "text", "large"], ["killed"]]
    result, model, engine = await recorded(ledger, plan)
    ran = ledger.lines()
    replay = Replay.of(engine.journal, RUN, engine.blobs)
    same_bytes(result, model, replay)
    assert ledger.lines() == ran
    words = [(one.tool, one.decision.word if one.decision else "", one.ended) for one in replay.calls]
    assert words[:6] == [
        ("look", "allow", "ok"),
        ("pay", "deny", "error"),
        ("broken", "allow", "error"),
        ("pay", "allow", "ok"),
        ("nobody", "refused", "error"),
        ("pay", "refused", "error"),
    ]
    asked = [one for one in replay.calls if one.approval]
    assert [one.decision.word for one in asked if one.decision] == ["ask", "allow"]
    assert replay.answers == ((asked[0].uid, True, "dora"),)


@given(plan=PLANS, allow=st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_run_is_rebuilt_byte_for_byte_from_a_closed_journal_file(plan: list[list[str]], allow: bool) -> None:
    import asyncio

    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        ledger, blobs = Ledger(root / "ledger"), DirectoryBlobs(root / "blobs")
        journal = SqliteJournal(root / "journal.db")
        result, model, _ = asyncio.run(recorded(ledger, plan, allow=allow, journal=journal, blobs=blobs))
        ran = ledger.lines()
        reader = SqliteJournal(root / "journal.db")
        replay = Replay.of(reader, RUN, blobs)
        same_bytes(result, model, replay)
        assert replay.encode() == Replay.of(reader, RUN, blobs).encode()
        asyncio.run(reader.close())
        assert ledger.lines() == ran


async def test_calls_made_without_an_agent_are_rebuilt(ledger: Ledger) -> None:
    """Calls that a host makes in a loop of its own are a run, too."""
    async with Engine(tools_of(ledger), policies=[rules()], run="bare") as engine:
        outcomes = [
            await engine.call(RawCall(name="pay", arguments=given, id=str(number)))
            for number, given in enumerate(['{"to": "ann"}', '{"to": "bob"}', "{"])
        ]
        replay = Replay.of(engine.journal, "bare", engine.blobs)
    assert replay.began is None
    assert [canonical(one) for one in replay.results] == [canonical(getattr(one, "result", None)) for one in outcomes]
    assert [one.decision.word for one in replay.calls if one.decision] == ["allow", "deny", "refused"]


async def test_a_later_run_of_a_conversation_is_rebuilt_with_its_earlier_history(ledger: Ledger) -> None:
    async with Agent(Script(says("One."), says("Two."), says("Three.")), tools=tools_of(ledger)) as agent:
        for number in range(3):
            result = await agent.run(str(number), conversation="c", scope=Scope(run=f"r{number}"))
        replay = Replay.of(agent.engine.journal, "r2", agent.engine.blobs)
        assert (canonical(replay.messages), replay.differences) == (canonical(result.messages), ())
        assert len(replay.passes) == 1


async def test_the_hash_of_a_pass_covers_the_messages_shown_to_the_model_after_compaction(ledger: Ledger) -> None:
    """As the event reference specifies: SHA-256 over each message as canonical JSON, preceded by its length in eight bytes."""
    model = Script(*(says(str(number)) for number in range(4)))
    settings: dict[str, Any] = {"compact": Compaction(compact=keep_last(2), at_tokens=1)}
    async with Agent(model, tools=tools_of(ledger), **settings) as agent:
        for number in range(4):
            await agent.run(f"Go {number}.", conversation="c", scope=Scope(run=f"r{number}"))
            (event,) = agent.engine.journal.find(EventQuery(run=f"r{number}", kinds=("phase.began",)))
            raws = [canonical(message) for message in model.seen[number]]
            body = json.loads(event.body)
            assert body["messages"] == len(raws)
            assert body["shown"] == sha256(b"".join(len(raw).to_bytes(8, "big") + raw for raw in raws)).hexdigest()
            assert Replay.of(agent.engine.journal, f"r{number}").differences == ()
        assert any(agent.engine.journal.find(EventQuery(kinds=("run.compacted",))))


async def test_a_run_resumed_by_another_agent_is_rebuilt_with_that_agents_system_text(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    many = script([["asked"]])
    async with Engine(tools_of(ledger), policies=[rules()], journal=SqliteJournal(path)) as engine:
        async with Agent(many, engine, instructions="Be short.") as agent:
            waiting = await agent.run("Do it.", scope=Scope(run=RUN))
        assert waiting.pending is not None
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
    other = Script(says("Done."))
    async with Engine(tools_of(ledger), policies=[rules()], journal=SqliteJournal(path)) as engine, Agent(other, engine) as agent:
        result = await agent.resume(RUN)
        replay = Replay.of(engine.journal, RUN)
    assert [canonical(list(one.messages)) for one in replay.passes] == [canonical(seen) for seen in (*many.seen, *other.seen)]
    assert (canonical(replay.messages), replay.differences) == (canonical(result.messages), ())


# Reports of what cannot be rebuilt


def changed(path: Path, kind: str, old: str, new: str) -> None:
    """Change the bodies of these events in the file, bypassing its triggers."""
    connection = apsw.Connection(str(path))
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    (column,) = (row[1] for row in connection.execute("PRAGMA table_info(events)") if row[1] == "body")
    query = f"UPDATE events SET {column} = CAST(replace(CAST({column} AS TEXT), ?, ?) AS BLOB) WHERE kind = ?"
    connection.execute(query, (old, new, kind))
    connection.close()


@pytest.mark.parametrize(
    ("kind", "old", "new", "told"),
    [
        ("call.completed", "saw a", "saw b", "what the model was shown in pass 2"),
        ("run.began", "Do it.", "Do them.", "what the model was shown in pass 1"),
        ("phase.answered", "Answer 90.", "Answer 91.", "the run's answer"),
        ("call.started", '"allow"', '"deny"', "the content of call.started"),
    ],
)
async def test_the_first_difference_of_an_altered_record_is_named(
    kind: str, old: str, new: str, told: str, tmp_path: Path, ledger: Ledger
) -> None:
    path = tmp_path / "journal.db"
    await recorded(ledger, [["ok"]], journal=SqliteJournal(path))
    changed(path, kind, old, new)
    journal = SqliteJournal(path)
    replay = Replay.of(journal, RUN)
    await journal.close()
    assert [one.what for one in replay.differences] == [told]
    assert "recorded is" in str(replay.differences[0])


async def test_a_committed_call_without_an_end_event_is_a_difference(ledger: Ledger) -> None:
    _, _, engine = await recorded(ledger, [["ok"]])
    kept = MemoryJournal()
    for event in engine.journal.read():
        if event.kind != "call.completed":
            body = Draft(kind=event.kind, run=event.run, body=event.body, call=event.call, parents=event.parents)
            kept.append(body)
    replay = Replay.of(kept, RUN)
    assert any("the end of call the-run/0/0" in one.what for one in replay.differences)


async def test_redacted_values_are_reported_as_lost_and_stay_out_of_the_replay(ledger: Ledger) -> None:
    """The replay does not contain the secret, and names the calls that lost a value."""

    model = Script(says("It is hunter2.", call("look", {"what": "hunter2"}, id="1")), says("Done."))
    async with Engine(tools_of(ledger), redactor=Hider()) as engine, Agent(model, engine) as agent:
        await agent.run("Say hunter2.", scope=Scope(run=RUN))
        replay = Replay.of(engine.journal, RUN, engine.blobs)
    assert b"hunter2" not in replay.encode()
    assert replay.differences == ()
    assert "a secret was taken out of it" in replay.calls[0].lost
    assert any("a secret was taken out" in gap for gap in replay.gaps)


async def test_a_large_result_without_its_blob_is_reported_as_a_gap(ledger: Ledger) -> None:
    result, model, engine = await recorded(ledger, [["large"]])
    replay = Replay.of(engine.journal, RUN)
    same_bytes(result, model, replay)
    (gap,) = replay.gaps
    assert "40000 bytes" in gap


async def test_an_event_body_in_a_missing_blob_store_raises_usage_error(ledger: Ledger) -> None:
    _, _, engine = await recorded(ledger, [["ok"]], limits=Limits(result_inline_bytes=64))
    with pytest.raises(UsageError, match="Give the blob store"):
        Replay.of(engine.journal, RUN)
    assert Replay.of(engine.journal, RUN, engine.blobs).differences == ()


async def test_context_items_are_rebuilt_only_if_the_conversation_keeps_them() -> None:
    @tool(effect="none")
    async def picture() -> dict[str, object]:
        """Bring a picture."""
        return {"type": "context_restart_image", "enhanced_context_item": "a large picture"}

    for keep in (False, True):
        model = Script(says(call("picture")), says("I see."))
        async with Agent(model, tools=[picture], restart=ContextRestarts(keep=keep)) as agent:
            result = await agent.run("Look.", scope=Scope(run=RUN))
            replay = Replay.of(agent.engine.journal, RUN, agent.engine.blobs)
        assert (canonical(replay.messages), replay.differences) == (canonical(result.messages), ())
        if keep:
            assert (replay.gaps, b"a large picture" in canonical(replay.messages)) == ((), True)
        else:
            assert "context from a tool" in replay.gaps[0]


async def test_a_record_without_hashes_is_rebuilt_and_reported_as_not_compared(ledger: Ledger) -> None:
    result, _, engine = await recorded(ledger, [["ok"]])
    old = MemoryJournal()
    for event in engine.journal.read():
        body = json.loads(event.body)
        if event.kind == "phase.began":
            body = {"phase": body["phase"], "iteration": body.get("iteration", 0)}
        old.append(Draft(kind=event.kind, run=event.run, body=canonical(body), call=event.call, parents=event.parents))
    replay = Replay.of(old, RUN)
    conversation: tuple[Message, ...] = replay.messages
    assert canonical(conversation) == canonical(result.messages)
    assert "an older version wrote it" in replay.gaps[0]


async def test_arguments_too_large_for_the_record_are_reported_as_lost(tmp_path: Path, ledger: Ledger) -> None:
    async with Engine(tools_of(ledger), run="bare", blobs=DirectoryBlobs(tmp_path / "blobs")) as engine:
        await engine.call(RawCall(name="look", arguments=json.dumps({"what": "x" * 70_000})))
        (one,) = Replay.of(engine.journal, "bare", engine.blobs).calls
    assert "70012 bytes" in one.lost


def test_an_unknown_run_raises_usage_error() -> None:
    with pytest.raises(UsageError, match="callgate log list"):
        Replay.of(MemoryJournal(), "nobody")
