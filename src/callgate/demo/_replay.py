"""Demonstration 9: replay a recorded run, judge it by other rules, ask another model, and run it as a test."""

from __future__ import annotations

from importlib.resources import files

from callgate._journal import open_reader
from callgate._json import canonical
from callgate.agent import Agent, RunResult
from callgate.demo import tools
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, events_in
from callgate.demo._model import scripted_model
from callgate.policy import Rules
from callgate.replay import JudgedRun, ModelComparison, Replay, ask_again, judge_again
from callgate.replay.run_file import RunFile
from callgate.testing import Call, RecordedRun, ScriptedModel
from callgate.testing.scripted_server import Script

__all__ = ["replay"]

_LOOK = Call("look_up", {"account": "A", "seconds": 0.0})
_SMALL = Call("charge", {"account": "A", "cents": 500, "seconds": 0.0})
_LARGE = Call("charge", {"account": "B", "cents": 90_000, "seconds": 0.0})
_RECORDED: list[Script] = [["I look, and pay the small one. ", _LOOK, _SMALL], ["Now the large one. ", _LARGE], "Both are paid."]
_TOOLS = (tools.look_up, tools.charge)


async def replay(stage: DemoRun) -> list[Finding]:
    """Record a run, then replay it, judge it by other rules, ask another model, and run it as a test."""
    result = await _record_run(stage)
    effects, events = len(stage.ledger.entries("effect")), len(events_in(stage.journal))
    reader = open_reader(stage.journal)
    try:
        made = Replay.of(reader, stage.name, stage.blobs)
        run = RecordedRun(RunFile.of(reader, stage.name, stage.blobs))
    finally:
        reader.close()
    stricter = _stricter(stage)
    judged = await judge_again(made, _TOOLS, [stricter])
    _show(stage, judged)
    other = ScriptedModel([["I look, and pay.", _LOOK, _SMALL], "That should be enough for today."], name="more careful")
    asked = await ask_again(made, other, _TOOLS)
    stage.screen.note(f"another model: {asked.ended}")
    played = [(await run.played(_TOOLS, policies)).differences for policies in ([], [stricter])]
    return [
        *_findings(made, result, judged, asked),
        finding(
            "the recorded run is a test: it passes with the same rules and fails with others",
            not played[0] and len(played[1]) > 0,
            played[1][:1],
        ),
        finding(
            "none of that started a tool or wrote an event",
            (effects, events) == (len(stage.ledger.entries("effect")), len(events_in(stage.journal))) == (2, events),
            f"{effects} payments and {events} events, before and after",
        ),
    ]


async def _record_run(stage: DemoRun) -> RunResult:
    async with (
        stage.engine(_TOOLS) as engine,
        scripted_model(_RECORDED, stage.root / "requests.jsonl") as model,
        Agent(model, engine) as agent,
    ):
        return await agent.run("Pay both.", scope=stage.scope(), on_event=stage.screen.tell)


def _stricter(stage: DemoRun) -> Rules:
    text = files("callgate.demo").joinpath("_scripts", "stricter.toml").read_text(encoding="utf-8")
    (stage.root / "stricter.toml").write_text(text, encoding="utf-8")
    return Rules.parse(text, where="stricter.toml")


def _show(stage: DemoRun, judged: JudgedRun) -> None:
    stage.screen.note("")
    stage.screen.note("the same log, judged by stricter.toml:")
    for one in judged.calls:
        then, now = (decision.word if decision is not None else "-" for decision in (one.call.decision, one.now))
        by = f" by {one.now.rule}" if one.differs and one.now is not None else ""
        stage.screen.note(f"  {'≠' if one.differs else '·'} {one.call.short} {one.call.tool}: {then}, now {now}{by}")
    at_once, _, later = judged.follows.partition(" From here on ")
    stage.screen.note(f"  {at_once}")
    stage.screen.note(f"  From here on {later}")


def _findings(made: Replay, result: RunResult, judged: JudgedRun, asked: ModelComparison) -> list[Finding]:
    same = canonical(made.messages) == canonical(result.messages) and canonical(made.results) == canonical(result.results)
    now = [one.now.rule for one in judged.differences if one.now is not None]
    return [
        finding(
            "the run is rebuilt from its journal alone, byte for byte",
            same and not made.differences,
            f"{len(made.messages)} messages, {len(made.passes)} passes, {len(made.calls)} calls",
        ),
        finding(
            "other rules would have stopped the large payment and nothing else",
            [one.call.short for one in judged.differences] == ["1/2"] and now == ["no-large-payments (stricter.toml:2)"],
            now,
        ),
        finding(
            "another model is compared as long as it makes the same calls",
            [one.same for one in asked.answers] == [True, False] and "would have ended here" in asked.ended,
            asked.ended,
        ),
    ]
