"""Hostile and unusual calls through the engine's public interface: executions, results, and the journal."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from callgate import Aborted, Answered, Engine, Limits, RawCall, Rules, Scope, SqliteJournal, ToolResult
from callgate.calls import Outcome
from callgate.protocols import Execution, RunRequest
from tests.corpus.fixture_tools import fixture_tools
from tests.corpus.input_files import build, most_ms, rows, same
from tests.effect_ledger import Ledger

POLICY = """
[[rule]]
id = "not-mallory"
verdict = "deny"
tool = "pay"
when = { "arguments.to" = "mallory" }
"""
CLOSED = {"length": "cut", "error": "cut", None: "cut"}


def engine_over(ledger: Ledger, root: Path, **settings: Any) -> Engine:
    root.mkdir(exist_ok=True)
    (root / "in.txt").write_text("inside", encoding="utf-8")
    return Engine(fixture_tools(ledger, root), policies=[Rules.parse(POLICY)], **settings)


def raw_of(row: dict[str, Any], *, name: str = "name") -> RawCall:
    arguments = build(row["args"])
    closed = CLOSED.get(row["finish"], "finished") if "finish" in row else "sealed"
    call_id = row.get("id", "")
    return RawCall(
        name=str(build(row[name])),
        arguments=arguments,
        id=build(call_id) if isinstance(call_id, dict) else call_id,  # type: ignore[arg-type]
        closed=closed,  # type: ignore[arg-type]
        idempotency_key=row.get("idempotency_key"),
    )


def word_for(outcome: Outcome, ran: int) -> tuple[str, str]:
    """Return the outcome in the words of the inputs, and its code."""
    if isinstance(outcome, Aborted):
        return "reject", "unknown_tool"
    assert isinstance(outcome, Answered)
    result = outcome.result
    if result.metadata.replayed:
        return "replayed", ""
    if result.status == "unknown":
        return "unknown", str(result.code)
    if result.metadata.attempts == 0:
        return "reject", str(result.code)
    if result.status == "error":
        return "tool_error", str(result.code)
    return "accept", ""


async def assert_alive_and_clean(engine: Engine) -> None:
    """Assert that the engine still works, each call has exactly one end, and the journal is strict JSON in UTF-8."""
    outcome = await engine.call(RawCall(name="ping", arguments="{}"))
    assert isinstance(outcome, Answered)
    assert outcome.result.success
    ends: dict[str, int] = {}
    for event in engine.journal.read():
        json.loads(event.body.decode("utf-8"), parse_constant=_no_constant)
        if event.kind in ("call.completed", "call.aborted", "call.suspended", "call.restarted"):
            ends[event.call] = ends.get(event.call, 0) + 1
    received = {event.call for event in engine.journal.read() if event.kind == "call.received"}
    assert ends == dict.fromkeys(received, 1)


def _no_constant(name: str) -> object:
    raise AssertionError(f"{name} in the record")


def assert_bounded(result: ToolResult) -> None:
    shown = result.text.encode("utf-8")
    assert len(shown) <= 65_536
    if not result.success:
        assert len(shown) <= 4_096 + 64


@pytest.mark.parametrize("row", rows("hostile/calls.jsonl", kind="call"))
async def test_a_hostile_call_ends_with_an_expected_outcome(row: dict[str, Any], tmp_path: Path, ledger: Ledger) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with engine_over(ledger, tmp_path / "root") as engine:
        raw = raw_of({**row, "name": row["tool"]})
        began = time.perf_counter()
        outcome = await engine.call(raw)
        took_ms = (time.perf_counter() - began) * 1000
        ran = ledger.lines()
        word, code = word_for(outcome, len(ran))
        allowed = row["expect"]["outcome"]
        noted = isinstance(outcome, Answered) and bool(outcome.result.metadata.notes)
        assert word in allowed or (word == "accept" and "accept_normalised" in allowed and noted), (word, code, outcome)
        if word == "reject" and "code" in row["expect"]:
            assert code in row["expect"]["code"], (code, outcome)
        least, most = row["expect"]["executed"]
        assert least <= len(ran) <= most
        if ran and "args" in row["expect"]:
            assert same(json.loads(ran[0])[1], row["expect"]["args"])
        if isinstance(outcome, Answered):
            assert_bounded(outcome.result)
        await assert_alive_and_clean(engine)
    assert took_ms <= most_ms(row)
    growth_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert growth_mb <= max(row["expect"].get("max_rss_mb", 64), 64) * 2


@pytest.mark.parametrize("row", rows("hostile/calls.jsonl", kind="batch"))
async def test_a_hostile_message_gets_one_outcome_per_call_in_order(row: dict[str, Any], tmp_path: Path, ledger: Ledger) -> None:
    made = row.get("calls_make", {"n": 0})
    calls = row.get("calls") or [
        {"id": f"c{n}", "name": made["name"], "args": made["args"].replace("%d", str(n))} for n in range(made["n"])
    ]
    async with engine_over(ledger, tmp_path / "root") as engine:
        outcomes = await engine.call_many([raw_of(call) for call in calls])
        ran = len(ledger.lines())
        assert len(outcomes) == len(calls) == row["expect"].get("results_n", len(calls))
        for outcome, allowed in zip(outcomes, row["expect"].get("results", []), strict=False):
            word, code = word_for(outcome, ran)
            assert any(one in (word, f"{word}:{code}", "any") for one in allowed.split("|")), (word, code, allowed)
        if "executed" in row["expect"]:
            least, most = row["expect"]["executed"]
            assert least <= ran <= most
        if len(calls) < 100:
            await assert_alive_and_clean(engine)


@pytest.mark.parametrize("row", rows("hostile/calls.jsonl", kind="rerun"))
async def test_a_repeated_call_has_no_second_effect(row: dict[str, Any], tmp_path: Path, ledger: Ledger) -> None:
    scope = Scope(run="run-1")
    journal = tmp_path / "journal.db"
    engine = engine_over(ledger, tmp_path / "root", journal=SqliteJournal(journal))
    if row["first"].get("crash"):
        await crash_after_intent(engine, raw_of(row["first"]), scope)
        engine = engine_over(ledger, tmp_path / "root", journal=SqliteJournal(journal))
    else:
        await engine.call(raw_of(row["first"]), scope)
    outcome = await engine.call(raw_of(row["second"]), scope)
    word, code = word_for(outcome, 0)
    assert {word, f"{word}:{code}"} & set(row["expect"]["outcome"]), (word, code)
    least, most = row["expect"]["executed"]
    assert least <= len(ledger.lines()) + bool(row["first"].get("crash")) <= most + bool(row["first"].get("crash"))
    await assert_alive_and_clean_closing(engine)


async def crash_after_intent(engine: Engine, raw: RawCall, scope: Scope) -> None:
    """Leave the journal of a process that dies after the intent is recorded and before the tool runs."""

    async def dies(request: RunRequest) -> Execution:
        raise asyncio.CancelledError

    plans = engine._parts.plans.by_identity
    plans.update({identity: replace(plan, start=dies) for identity, plan in plans.items()})
    engine._parts.route.outcomes.end_cancelled = lambda state, why: None  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await engine.call(raw, scope)
    await engine.close()


async def assert_alive_and_clean_closing(engine: Engine) -> None:
    journal = engine.journal
    assert isinstance(journal, SqliteJournal)
    await engine.close()
    reopened = SqliteJournal(journal.path)
    assert reopened.verify() is None
    await reopened.close()


def test_the_limits_assumed_by_the_inputs_are_the_defaults() -> None:
    limits = Limits()
    assert (limits.arguments_bytes, limits.arguments_depth, limits.call_id_chars) == (1_048_576, 64, 256)
    assert limits.result_inline_bytes == 1_048_576
