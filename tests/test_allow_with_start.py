"""The allow of a call that starts is recorded with its start; that of a call that does not start is recorded before its end."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from callgate import (
    Answered,
    Engine,
    Limits,
    Retryable,
    RetryPolicy,
    Rules,
    Scope,
    SqliteJournal,
    Suspended,
    Tool,
    before_call,
    tool,
)
from callgate._call_summary import summarise
from callgate.recorded_calls import find_tool_calls
from callgate.replay import Replay
from callgate.stage_types import ValidatedCall
from tests.cacheable_tool import Count, counting
from tests.engine_calls import bodies, body, call, kinds, said

ALLOW = Rules.parse('[[rule]]\nid = "may"\nverdict = "allow"\n', where="rules.toml")
ASK = Rules.parse('[[rule]]\nid = "asks"\nverdict = "ask"\ntool = "pay"\n', where="rules.toml")
STARTED = ["call.received", "call.started", "call.completed"]
NOT_STARTED = ["call.received", "call.verdict", "call.completed"]


@tool
async def pay(to: str, cents: int = 1) -> str:
    """Pay."""
    return f"paid {to}"


@tool(name="pay", runner="process")
def pay_in_process(to: str, cents: int = 1) -> str:
    """Pay."""
    return f"paid {to}"


async def test_a_call_that_runs_writes_three_events_and_its_start_says_who_allowed_it() -> None:
    async with Engine([pay], policies=[ALLOW]) as engine:
        result = await said(engine, call("pay", to="ann", cents="5"), Scope(run="r"))
        assert kinds(engine) == STARTED
        [start] = bodies(engine, "call.started")
        assert (start["verdict"], start["rule"]) == ("allow", "may (rules.toml:1)")
        assert start["arguments"] == {"to": "ann", "cents": 5}
        assert [note["kind"] for note in start["notes"]] == ["coerced"]  # type: ignore[attr-defined]
        assert result.metadata.rule == start["rule"]
        [entry] = find_tool_calls(engine.journal)
        assert [(one.verdict, one.rule, one.arguments) for one in entry.verdicts] == [("allow", start["rule"], {"to": "ann", "cents": 5})]
        [summary] = summarise(event for event in engine.journal.read() if event.kind != "call.completed")
        assert (summary.tool, summary.rule, len(summary.notes)) == ("pay", start["rule"], 1)
        [replayed] = Replay.of(engine.journal, "r").calls
        assert replayed.decision is not None
        assert (replayed.decision.word, replayed.decision.rule, replayed.identity) == ("allow", start["rule"], start["identity"])


async def test_only_the_first_start_has_the_allow() -> None:
    tries = Count()

    @tool(effect="idempotent", retry=RetryPolicy(attempts=2, base_s=0.0))
    async def save() -> str:
        """Save."""
        tries.runs += 1
        if tries.runs == 1:
            raise Retryable("the disk is busy")
        return "saved"

    async with Engine([save], policies=[ALLOW]) as engine:
        assert (await said(engine, call("save"))).status == "ok"
        assert ["verdict" in start for start in bodies(engine, "call.started")] == [True, False]
        [entry] = find_tool_calls(engine.journal)
        assert len(entry.verdicts) == 1


async def test_a_cached_answer_says_who_allowed_the_call() -> None:
    async with Engine([counting(Count(), cache_scope="session")], policies=[ALLOW]) as engine:
        first, second = [await said(engine, call("look", id=id)) for id in ("1", "2")]
        assert (kinds(engine, first.uid), kinds(engine, second.uid)) == (STARTED, NOT_STARTED)
        assert bodies(engine, "call.verdict")[0]["rule"] == "may (rules.toml:1)"


async def test_a_call_that_is_refused_between_gate_and_start_says_who_allowed_it() -> None:
    """By the limit of dangerous calls, which is counted when a call is about to start."""

    @tool(category="dangerous", writes=())
    async def fire() -> str:
        """Fire. The calls declare that they do not conflict, so both reach their start."""
        return "fired"

    gated = asyncio.Barrier(2)

    @before_call("fire", kind="observe")
    async def wait_for_the_other(call: ValidatedCall) -> None:
        await gated.wait()

    async with Engine([fire], hooks=[wait_for_the_other], policies=[ALLOW], limits=Limits(dangerous_per_tick=1)) as engine:
        both = await asyncio.gather(*(said(engine, call("fire", id=id), Scope(run="r")) for id in ("1", "2")))
        [refused] = [one for one in both if one.status == "error"]
        assert refused.failure_class == "dangerous_limit"
        assert kinds(engine, refused.uid) == NOT_STARTED
        assert bodies(engine, "call.verdict")[0]["verdict"] == "allow"


async def test_a_call_that_is_stopped_between_gate_and_start_says_who_allowed_it() -> None:
    @before_call("pay", kind="observe")
    def stop(call: ValidatedCall) -> None:
        engine.control.stop("talk")

    async with Engine([pay], hooks=[stop], policies=[ALLOW]) as engine:
        await engine.call(call("pay", to="ann"), Scope(conversation="talk"))
        assert kinds(engine) == ["call.received", "call.verdict", "call.aborted"]
        assert bodies(engine, "call.verdict")[0]["verdict"] == "allow"


async def test_the_allow_is_on_disk_before_the_effect(tmp_path: Path) -> None:
    @tool(name="pay")
    async def pay_and_copy(to: str) -> str:
        """Keep the journal as it is now: what a process that ends here would leave."""
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{tmp_path / 'journal.db'}{suffix}", f"{tmp_path / 'left.db'}{suffix}")
        return "paid"

    async with Engine([pay_and_copy], policies=[ALLOW], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        await said(engine, call("pay", to="ann"))
    left = SqliteJournal(tmp_path / "left.db")
    last = list(left.read())[-1]
    assert (last.kind, body(last)["verdict"], body(last)["arguments"]) == ("call.started", "allow", {"to": "ann"})
    await left.close()


@pytest.mark.parametrize("made", [pay, pay_in_process], ids=["inline", "process"])
async def test_an_approval_that_a_start_used_is_used_up_for_the_next_engine_too(made: Tool, tmp_path: Path) -> None:
    scope = Scope(run="r", turn=1)
    async with Engine([made], policies=[ASK], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        asked = await engine.call(call("pay", to="ann", id="a"), scope)
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True, by="dora")
        assert isinstance(await engine.call(call("pay", to="ann", id="b"), scope), Answered)
        assert [start["approval"] for start in bodies(engine, "call.started")] == [asked.approval_id]
    async with Engine([made], policies=[ASK], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        assert isinstance(await engine.call(call("pay", to="ann", id="c"), scope), Suspended)
