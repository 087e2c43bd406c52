"""Tests of journals that an older callgate wrote: they open, verify, list and replay as before, and their work can continue."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from callgate import Answered, Deny, PostgresJournal, Scope, SqliteJournal, Suspended
from callgate._journal import open_reader
from callgate.calls import Outcome
from callgate.event_queries import EventQuery, select
from callgate.policy import Rules
from callgate.replay import Replay, judge_again
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import call, says
from tests.cli.shell import shell
from tests.effect_ledger import Ledger
from tests.engine_calls import result_of
from tests.journals import scenario
from tests.journals.journal_summary import read_again
from tests.journals.make_fixture import FOLDER
from tests.journals.postgres_server import Server

NAMES = ("version-2", "version-3", "version-4")
Place = Callable[[], SqliteJournal | PostgresJournal]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Provide the name of a fixture, which is the version of its tables."""
    return str(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> str:
    """Provide the address of a copy of the fixture."""
    if request.param == "sqlite":
        for suffix in (".db", ".db.lock", ".db.blobs"):
            kept = FOLDER / f"{name}{suffix}"
            if kept.exists():
                (shutil.copytree if kept.is_dir() else shutil.copyfile)(kept, tmp_path / f"journal{suffix}")
        return str(tmp_path / "journal.db")
    url = str(request.getfixturevalue("database"))
    postgres: Server = request.getfixturevalue("postgres")
    postgres.ask(f"CREATE SCHEMA callgate; SET search_path = callgate; {(FOLDER / f'{name}.sql').read_text(encoding='utf-8')}", url)
    return url


@pytest.fixture
def opened(address: str) -> Place:
    return lambda: PostgresJournal(address) if "://" in address else SqliteJournal(address)


def recorded_summary(name: str) -> Any:
    """Return the summary that the readers produced when the fixture was made."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def uid_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Answered), outcome
    return outcome.result.uid


def test_every_call_and_run_of_an_old_journal_is_read_unchanged(address: str, name: str) -> None:
    """Compares verdicts, final arguments, ends, results and conversations, without opening the journal for writing."""
    reader = open_reader(address)
    assert reader.verify() is None
    assert read_again(reader, getattr(reader, "blobs", None)) == recorded_summary(name)
    reader.close()


BY_CALL = (EventQuery(conversation="talk"), EventQuery(principal="team"), EventQuery(principal=""))


@pytest.mark.parametrize("query", BY_CALL, ids=["conversation", "principal", "no principal"])
def test_a_reader_finds_calls_by_what_the_tables_do_not_have(address: str, query: EventQuery) -> None:
    reader = open_reader(address)
    query = replace(query, kinds=("call.completed",), newest_first=True)
    found = [event.position for event in reader.find(query)]
    assert found == [event.position for event in select(reader.find(EventQuery()), query)]
    assert len(found) > 1
    reader.close()


async def test_a_migrated_journal_has_the_same_content_and_verifies(opened: Place, name: str) -> None:
    """Opening the journal migrates its tables to the current version and changes no event."""
    journal = opened()
    assert journal.verify() is None
    for query in BY_CALL:
        assert list(journal.find(query)) == select(journal.read(), query) != []
    assert read_again(journal, getattr(journal, "blobs", None)) == recorded_summary(name)
    await journal.close()


KILLED = {"cut/0/0": "unknown", "agent-cut/1/2": "unknown", "agent-approved/0/0": "aborted"}
"""Calls whose process was killed. The events alone say that they are open; `callgate log` sees that nobody holds the lease of their run."""


def test_the_log_commands_list_and_show_each_call(address: str, name: str, tmp_path: Path) -> None:
    then = recorded_summary(name)["calls"]
    listed = shell(tmp_path, "log", "list", "--json", "--journal", address).lines
    shown = {uid: (one["tool"], ({} if name == "version-2" else KILLED).get(uid, one["status"])) for uid, one in then.items()}
    assert {one["uid"]: (one["tool"], one["status"]) for one in listed} == shown
    for words in (["stats", "--json"], ["show", "calls/0/18", "--json"], ["tree", "agent-done", "--json"], ["verify"]):
        assert shell(tmp_path, "log", *words, "--journal", address).code == 0
    cached = next(one for one in listed if one["cached"])
    assert (cached["uid"], cached["attempts"]) == ("calls/0/9", 0)
    assert [one["uid"] for one in listed if one["replayed"]] == ["calls/0/16"]


async def test_pending_approvals_are_listed(opened: Place, address: str, tmp_path: Path) -> None:
    await opened().close()
    listed = shell(tmp_path, "approvals", "--json", "--journal", address).lines
    assert {(one["approval"], json.loads(one["arguments"])["cents"]) for one in listed} == {
        ("waiting/0/0", 3000),
        ("agent-waiting/0/1", 4000),
    }


async def test_a_recorded_run_can_be_judged_again(opened: Place, ledger: Ledger) -> None:
    """The recorded rules give the recorded verdicts; stricter rules deny calls that were allowed."""
    journal = opened()
    tools = scenario.tools_of(ledger, lambda: None)
    replay = Replay.of(journal, scenario.CALLS)
    same = await judge_again(replay, tools, [Rules.parse(scenario.RULES, where="rules.toml")], hooks=[scenario.in_folder])
    assert [one.call.uid for one in same.calls if one.change not in ("", "words")] == []
    assert same.changed == ()

    class NoPayments:
        async def decide(self, call: ValidatedCall) -> Any:
            return Deny(reason="no payments") if call.name == "pay" else None

    strict = await judge_again(replay, tools, [NoPayments()], hooks=[scenario.in_folder])
    assert "calls/0/1" in [one.call.uid for one in strict.differences]
    assert ledger.lines() == []
    await journal.close()


async def test_an_interrupted_run_is_resumed_and_repeats_no_effect(opened: Place, ledger: Ledger) -> None:
    """Finished calls are not repeated. The call with an unknown outcome is not started again, and the model is told about it."""
    journal, answers = opened(), (says(call("pay", {"to": "kim"}, id="d3")), says("Done."))
    async with scenario.engine_on(journal, ledger) as engine, scenario.agent_on(engine, *answers) as agent:
        result = await agent.resume(scenario.AGENT_CUT)
        assert (result.status, result.text) == ("completed", "Done.")
        told = [(one.id, one.status) for one in result.results]
        assert told == [("d0", "ok"), ("d1", "ok"), ("d2", "unknown"), ("d3", "ok")]
        assert journal.verify() is None
    assert ledger.lines() == ["pay kim 1"]


async def test_an_approved_call_that_had_not_started_runs_once(opened: Place, ledger: Ledger) -> None:
    async with scenario.engine_on(opened(), ledger) as engine, scenario.agent_on(engine, says("Done.")) as agent:
        result = await agent.resume(scenario.AGENT_APPROVED)
        assert [(one.id, one.status) for one in result.results] == [("e0", "ok")]
    assert ledger.lines() == [f"stall {scenario.NOT_YET}"]


@pytest.mark.parametrize("allow", [True, False], ids=["allowed", "refused"])
async def test_a_run_waiting_for_approval_is_answered_and_resumed(opened: Place, ledger: Ledger, allow: bool) -> None:
    async with scenario.engine_on(opened(), ledger) as engine, scenario.agent_on(engine, says("Done.")) as agent:
        await engine.answer("agent-waiting/0/1", allow=allow, by="dora")
        result = await agent.resume(scenario.AGENT_WAITING)
        assert result.status == "completed"
        assert [(one.id, one.status) for one in result.results] == [("b0", "ok"), ("b1", "ok" if allow else "error")]
    assert ledger.lines() == (["pay ida 4000"] if allow else [])


async def test_an_approved_call_runs_once_and_only_with_the_approved_arguments(opened: Place, ledger: Ledger) -> None:
    scope = Scope(run=scenario.WAITING, principal="team")
    async with scenario.engine_on(opened(), ledger) as engine:
        await engine.answer("waiting/0/0", allow=True, by="dora")
        other = await engine.call(scenario.raw("pay", '{"cents": 3001, "to": "gil"}', "w2"), scope)
        assert isinstance(other, Suspended)
        done = await engine.call(scenario.raw("pay", '{"cents": 3000, "to": "gil"}', "w1"), scope)
        assert result_of(done).status == "ok"
        again = await engine.call(scenario.raw("pay", '{"cents": 3000, "to": "gil"}', "w3"), scope)
        assert isinstance(again, Suspended)
    assert ledger.lines() == ["pay gil 3000"]


async def test_a_call_with_an_unknown_outcome_is_not_started_again_until_settled(opened: Place, ledger: Ledger) -> None:
    scope = Scope(run=scenario.CUT)
    async with scenario.engine_on(opened(), ledger) as engine:
        again = result_of(await engine.call(scenario.raw("stall", '{"why": "one call"}', "k1", key="order-2"), scope))
        assert again.status == "unknown"
        like_it = result_of(await engine.call(scenario.raw("stall", '{"why": "one call"}', "k2"), scope))
        assert like_it.status == "unknown"
        await engine.settle("cut/0/0", happened=False)
        settled = result_of(await engine.call(scenario.raw("stall", '{"why": "one call"}', "k1", key="order-2"), scope))
        assert settled.status == "ok"
    assert ledger.lines() == ["stall one call"]


async def test_repeated_calls_are_replayed_from_the_journal(opened: Place, ledger: Ledger) -> None:
    """A repeat is recognised by its idempotency key, or by its id within its turn; a call with another id is new."""
    async with scenario.engine_on(opened(), ledger) as engine:
        for raw in (
            scenario.raw("pay", '{"to": "eve"}', "another", key="order-1"),
            scenario.raw("pay", '{"to": "ann", "cents": "5"}', "c2"),
            scenario.raw("save", '{"text": "hello", "path": "notes"}', "c4"),
            scenario.raw("pay", '{"to": "fay", "cents": 2000}', "c16"),
        ):
            result = result_of(await engine.call(raw, scenario.SCOPE))
            assert (result.status, result.metadata.replayed) == ("ok", True), raw
        assert ledger.lines() == []
        new = result_of(await engine.call(scenario.raw("pay", '{"to": "eve"}', "new"), scenario.SCOPE))
        assert (new.status, new.metadata.replayed) == ("ok", False)
    assert ledger.lines() == ["pay eve 1"]


async def test_the_latest_result_of_a_conversation_is_found(opened: Place, ledger: Ledger) -> None:
    async with scenario.engine_on(opened(), ledger) as engine:
        latest = engine.current_tool_call("talk")
        assert latest is not None
        assert (latest.uid, latest.structured) == ("calls/0/18", {"paid": 2000, "to": "fay"})
        assert latest.parameters == {"to": "fay", "cents": 2000}
        assert engine.current_tool_call("nobody's") is None
        fresh = uid_of(await engine.call(scenario.raw("look", '{"what": "it"}', "z1"), scenario.SCOPE))
        assert getattr(engine.current_tool_call("talk"), "uid", "") == fresh
    async with scenario.engine_on(opened(), ledger) as engine:
        assert getattr(engine.current_tool_call("talk"), "uid", "") == fresh


@pytest.mark.parametrize("name", NAMES)
def test_a_fixture_contains_no_machine_paths(name: str) -> None:
    """Fixtures must not reveal the paths of the machine that made them."""
    kept = (FOLDER / f"{name}.db").read_bytes()
    assert [word for word in (b"/home", b"/root", b"/tmp", b"/work", b"/usr", b"site-packages") if word in kept] == []
