"""A recorded run whose engines had settings of their own, repeated as an exported test repeats it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from callgate import Allow, Ask, Engine, RetryPolicy, Scope, SqliteJournal, Tool, tool
from callgate.agent import Agent, Budget, Settings
from callgate.protocols import Verdict
from callgate.replay.run_file import RunFile
from callgate.stage_types import ValidatedCall
from callgate.testing import Call, RecordedRun, ScriptedModel
from tests.engine_calls import call, result_of

LOOK = Call("look", {"n": 1})


@tool
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@tool(effect="idempotent", retry=RetryPolicy(attempts=3, base_s=0.01, max_s=0.01), attempt_timeout_s=0.05)
async def slow(n: int) -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "late"


@tool(effect="none")
async def look(n: int) -> str:
    """Look."""
    return "seen"


TOOLS: list[Tool] = [pay, slow, look]


class AskAboutLooks:
    async def decide(self, call: ValidatedCall) -> Verdict:
        return Ask(question="May it look?") if call.name == "look" else Allow()


async def recorded(path: Path, parts: list[tuple[dict[str, Any], dict[str, Any], list[Any]]]) -> RecordedRun:
    """Work on one run with an engine and an agent for each part. A part that is not the last one waits for an approval, or is cut short."""
    for number, (settings, options, turns) in enumerate(parts):
        journal = SqliteJournal(path / "journal.db")
        engine = Engine(TOOLS, policies=[AskAboutLooks()], journal=journal, **settings)
        async with engine, Agent(ScriptedModel(turns), engine, **options) as agent:
            result = await (agent.resume("r") if number else agent.run("Go.", scope=Scope(run="r")))
            assert (result.status == "completed") == (number == len(parts) - 1)
            for event in [one for one in engine.journal.read(run="r") if one.kind == "call.suspended"]:
                if engine.approval(event.call) is not None:
                    await engine.approve(event.call)
            kept = RunFile.of(engine.journal, "r", engine.blobs)
    return RecordedRun(kept)


@pytest.mark.parametrize("calls", ["pay five", "malformed", "slow"])
@pytest.mark.parametrize(
    "settings",
    [
        ({"coerce": False}, {"coerce": False}),
        ({"coerce": False}, {}),
        ({}, {"coerce": False}),
        ({"repair": True}, {}),
        ({}, {"repair": True}),
        ({"timeout_s": 0.08}, {}),
        ({"coerce": False, "repair": True}, {"repair": False}),
    ],
    ids=["never converts", "converts later", "converts first", "repairs first", "repairs later", "less time first", "both"],
)
async def test_an_unchanged_run_has_no_differences_whatever_settings_its_engines_had(
    calls: str, settings: tuple[dict[str, Any], dict[str, Any]], tmp_path: Path
) -> None:
    made = {"pay five": Call("pay", {"n": "5"}), "malformed": Call("pay", '{"n": 5,}'), "slow": Call("slow", {"n": 1})}[calls]
    first, second = settings
    run = await recorded(tmp_path, [(first, {}, [[made], [LOOK]]), (second, {}, [[made], ["Done."]])])
    assert (await run.played(TOOLS, [AskAboutLooks()])).differences == ()


async def test_an_unchanged_run_that_got_a_larger_budget_when_it_was_resumed_has_no_differences(tmp_path: Path) -> None:
    small, large = (Settings(budget=Budget(iterations=most)) for most in (1, 9))
    made = Call("pay", {"n": "5"})
    run = await recorded(
        tmp_path, [({"coerce": False}, {"settings": small}, [[made], [made]]), ({}, {"settings": large}, [[made], ["Done."]])]
    )
    assert (await run.played(TOOLS, [AskAboutLooks()])).differences == ()


async def test_an_unchanged_run_whose_model_failed_before_it_was_resumed_has_no_differences(tmp_path: Path) -> None:
    made = Call("pay", {"n": 5})
    run = await recorded(tmp_path, [({}, {}, [[made]]), ({}, {}, [[made], ["Done."]])])  # the first model has no second turn
    assert (await run.played(TOOLS, [AskAboutLooks()])).differences == ()


async def test_bare_calls_of_engines_with_other_settings_have_no_differences(tmp_path: Path) -> None:
    for coerce in (True, False, True):
        async with Engine(TOOLS, journal=SqliteJournal(tmp_path / "journal.db"), coerce=coerce) as engine:
            assert result_of(await engine.call(call("pay", n="5"), Scope(run="r"))).success == coerce
            kept = RunFile.of(engine.journal, "r", engine.blobs)
    assert (await RecordedRun(kept).played(TOOLS)).differences == ()


async def test_a_call_without_time_for_another_attempt_has_no_difference(tmp_path: Path) -> None:
    @tool(effect="idempotent", retry=RetryPolicy(attempts=2, base_s=0.01, max_s=0.01))
    async def send() -> None:
        """Lose the connection, and hold the event loop until the call's time is over."""
        asyncio.get_running_loop().call_soon(time.sleep, 0.6)
        raise ConnectionResetError("the connection was lost")

    engine = Engine([send], journal=SqliteJournal(tmp_path / "journal.db"), timeout_s=0.5)
    async with engine, Agent(ScriptedModel([[Call("send", {})], [Call("send", {})], ["Done."]]), engine) as agent:
        result = await agent.run("Go.", scope=Scope(run="r"))
        assert "was not started again" in (result.results[0].error or "")
        assert result.results[1].code == "outcome_unknown"
        kept = RunFile.of(engine.journal, "r", engine.blobs)
    assert (await RecordedRun(kept).played([send])).differences == ()


async def test_a_call_that_the_tool_of_today_accepts_is_still_a_difference(tmp_path: Path) -> None:
    @tool(name="pay")
    async def strict(n: bool) -> str:
        """Pay."""
        return f"paid {n}"

    async with Engine([strict], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        assert not result_of(await engine.call(call("pay", n="5"), Scope(run="r"))).success
        kept = RunFile.of(engine.journal, "r", engine.blobs)
    differences = (await RecordedRun(kept).played(TOOLS)).differences
    assert any("refused (schema_invalid)" in one and "now allow" in one for one in differences)
