"""A recorded run is repeated with the current tools and rules, but without running the tools; every difference is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Engine, RawCall, Retryable, RetryPolicy, Scope, Tool, tool
from callgate.agent import Agent, ContextRestarts
from callgate.errors import UsageError
from callgate.models.wire.request import ToolSpec
from callgate.replay import Replay, judge_again
from callgate.replay.run_file import RunFile
from callgate.testing import ManualClock, PlayedAgain, RecordedRun
from tests.agent.scripted_model import Gate, Script, call, says
from tests.effect_ledger import Ledger
from tests.host_fakes import Hider
from tests.replay.sample_runs import CALLS, RULES, RUN, rules, run_of, script, tools_of

PLANS = st.lists(st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=3), min_size=0, max_size=4)
ALL = [["ok", "denied", "failed"], ["coerced", "unknown", "invalid"], ["asked", "ok"], ["malformed", "text", "large"]]


async def kept(ledger: Ledger, plan: Sequence[Sequence[str]], *, allow: bool = True, tools: Sequence[Tool] = ()) -> RunFile:
    engines: list[Engine] = []
    async with Engine([*tools_of(ledger, engines), *tools], policies=[rules()]) as engine:
        engines.append(engine)
        async with Agent(script(plan), engine) as agent:
            await run_of(agent, allow=allow)
        return RunFile.of(engine.journal, RUN, engine.blobs)


@given(plan=PLANS, allow=st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_run_repeats_without_differences_and_without_running_a_tool(
    plan: list[list[str]], allow: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("run")
    ledger = Ledger(place / "ledger")

    async def recorded() -> bytes:
        return (await kept(ledger, plan, allow=allow)).encode()

    (place / "run.jsonl").write_bytes(asyncio.run(recorded()))
    ran = ledger.lines()
    again = RecordedRun.load(place / "run.jsonl").again(tools_of(ledger), [rules()])
    assert again.differences == ()
    assert ledger.lines() == ran


async def test_every_kind_of_call_repeats_without_differences(ledger: Ledger) -> None:
    run = RecordedRun(await kept(ledger, ALL))
    ran = ledger.lines()
    again = await run.played(tools_of(ledger), [rules()])
    assert again.differences == ()
    assert [one.ended for one in again.replay.calls] == [one.ended for one in run.replay.calls]
    assert ledger.lines() == ran


async def again(ledger: Ledger, plan: Sequence[Sequence[str]], tools: Sequence[Tool], text: str = RULES) -> PlayedAgain:
    return await RecordedRun(await kept(ledger, plan)).played(tools, [rules(text)])


async def test_a_call_that_other_rules_decide_differently_is_reported_with_the_rule(ledger: Ledger) -> None:
    stricter = '[[rule]]\nid = "no-looks"\nverdict = "deny"\ntool = "look"\nreason = "No."\n'
    played = await again(ledger, [["ok"], ["coerced"]], tools_of(ledger), stricter)
    assert played.differences[0].startswith("Call 0/0 of look: verdict: allow")
    assert "deny (no-looks (rules.toml:1))" in played.differences[0]
    assert any("Message 3 was" in one for one in played.differences)


async def test_rules_at_another_line_or_in_another_file_make_no_difference(ledger: Ledger) -> None:
    """A denial contains the file and line of its rule; a different location is not a difference."""
    plain = '[[rule]]\nid = "no-bob"\nverdict = "deny"\ntool = "pay"\n'

    async def recorded() -> RunFile:
        async with Engine(tools_of(ledger), policies=[rules(plain)]) as engine, Agent(script([["denied"]]), engine) as agent:
            await run_of(agent)
            return RunFile.of(engine.journal, RUN, engine.blobs)

    played = await RecordedRun(await recorded()).played(tools_of(ledger), [rules(f"# moved\n\n{plain}", where="/elsewhere/rules.toml")])
    assert played.differences == ()


async def test_a_changed_tool_is_reported(ledger: Ledger) -> None:
    @tool(effect="none")
    async def look(what: int) -> str:
        """Look at a number."""
        raise AssertionError

    played = await again(ledger, [["ok"]], [look, *(one for one in tools_of(ledger) if one.name != "look")])
    assert "Call 0/0 of look: verdict: allow" in played.differences[0]
    assert "refused (schema_invalid)" in played.differences[0]


async def test_arguments_without_a_recorded_result_are_reported(ledger: Ledger) -> None:
    @tool
    async def pay(to: str, cents: int = 1, currency: str = "EUR") -> dict[str, object]:
        """Pay."""
        raise AssertionError

    played = await again(ledger, [["coerced"]], [pay, *(one for one in tools_of(ledger) if one.name != "pay")])
    assert any("has no recorded result" in one for one in played.differences)


async def test_a_loop_that_behaves_differently_is_reported(ledger: Ledger) -> None:
    run = RecordedRun(await kept(ledger, [["ok"], ["ok"], ["ok"], ["ok"], ["ok"]]))
    assert (await run.played(tools_of(ledger), [rules()])).differences == ()
    assert (await run.played(tools_of(ledger), [rules()], stuck=None)).differences != ()


async def test_a_call_that_failed_after_retries_repeats_without_differences(ledger: Ledger) -> None:
    """The waits between attempts end at once."""
    clock = ManualClock()
    tries: list[int] = []

    @tool(effect="none", retry=RetryPolicy(attempts=3))
    async def flaky() -> str:
        """Fail on every attempt."""
        tries.append(1)
        raise Retryable("later")

    async with Engine([flaky], clock=clock) as engine, Agent(Script(says(call("flaky")), says("Done.")), engine) as agent:
        running = asyncio.ensure_future(agent.run("Go.", scope=Scope(run=RUN)))
        while not running.done():
            await asyncio.sleep(0)
            clock.advance(1.0 if clock.sleeping else 0.0)
        recorded = RunFile.of(engine.journal, RUN, engine.blobs)
    assert len(tries) == 3
    assert (await RecordedRun(recorded).played([flaky])).differences == ()
    assert len(tries) == 3


class Wrapped(Tool):
    name = "wrapped"
    description = "Give a result as a dictionary with `success`."
    parameters = {"type": "object", "properties": {"fail": {"type": "boolean"}}}
    category = "safe_chain"
    requires_actor = False

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        if params.get("fail"):
            return {"success": False, "error": "not today", "data": [1]}
        return {"success": True, "data": {"a": 1}, "message": "well", "image_metadata": {"alt": "x"}}


async def test_results_of_every_shape_repeat_without_differences(ledger: Ledger) -> None:
    @tool(effect="none")
    async def nothing() -> None:
        """Return nothing."""

    @tool(effect="none")
    async def large() -> list[int]:
        """Return a large list."""
        return list(range(30_000))

    @tool(effect="none")
    async def odd() -> object:
        """Return a value that is not JSON."""
        return object()

    names = ["nothing", "large", "odd"]
    calls = [call(name, id=name, position=place) for place, name in enumerate(names)]
    more = [call("wrapped", {"fail": fail}, id=f"w{fail}", position=3 + place) for place, fail in enumerate((False, True))]
    tools = [nothing, large, odd, Wrapped()]
    async with Engine(tools) as engine, Agent(Script(says(*calls, *more), says("Done.")), engine) as agent:
        await agent.run("Go.", scope=Scope(run=RUN))
        recorded = RunFile.of(engine.journal, RUN, engine.blobs)
    played = await RecordedRun(recorded).played(tools)
    assert played.differences == ()
    assert [one.ended for one in played.replay.calls] == ["ok", "ok", "error", "ok", "error"]


async def test_nested_calls_of_a_tool_are_not_made_again(ledger: Ledger) -> None:
    from callgate import ToolContext

    @tool(effect="none")
    async def outer(context: ToolContext) -> str:
        """Call another."""
        return (await context.call("look", {"what": "inside"})).text

    recorded_tools = [outer, *tools_of(ledger)]
    async with Engine(recorded_tools) as engine, Agent(Script(says(call("outer")), says("Done.")), engine) as agent:
        await agent.run("Go.", scope=Scope(run=RUN))
        recorded = RunFile.of(engine.journal, RUN, engine.blobs)
    ran = ledger.lines()
    assert (await RecordedRun(recorded).played(recorded_tools)).differences == ()
    assert ledger.lines() == ran


async def test_exit_calls_are_repeated_as_signals(ledger: Ledger) -> None:
    leave = ToolSpec(name="leave", description="Leave.", schema={"type": "object"})
    model = Script(says("Bye.", call("leave", {"why": "done"}, id="e")))
    async with Agent(model, tools=tools_of(ledger), exit_tools=[leave]) as agent:
        result = await agent.run("Go.", scope=Scope(run=RUN))
        recorded = RunFile.of(agent.engine.journal, RUN, agent.engine.blobs)
    played = await RecordedRun(recorded).played(tools_of(ledger))
    assert (played.differences, played.replay.signals) == ((), result.signals)


async def test_a_later_run_of_a_conversation_repeats_with_its_earlier_history(ledger: Ledger) -> None:
    async with Agent(Script(says("One."), says(call("look", {"what": "a"})), says("Two.")), tools=tools_of(ledger)) as agent:
        await agent.run("1", conversation="c", scope=Scope(run="r1"))
        await agent.run("2", conversation="c", scope=Scope(run=RUN))
        recorded = RunFile.of(agent.engine.journal, RUN, agent.engine.blobs)
    assert (await RecordedRun(recorded).played(tools_of(ledger))).differences == ()


async def test_calls_made_without_an_agent_are_repeated(ledger: Ledger) -> None:
    async with Engine(tools_of(ledger), policies=[rules()], run="bare") as engine:
        for number, arguments in enumerate(['{"to": "ann"}', '{"to": "bob"}', '{"to": "ann", "cents": 9999}']):
            await engine.call(RawCall(name="pay", arguments=arguments, id=str(number)))
        recorded = RunFile.of(engine.journal, "bare", engine.blobs)
    ran = ledger.lines()
    run = RecordedRun(recorded)
    assert (await run.played(tools_of(ledger), [rules()])).differences == ()
    assert len((await run.played(tools_of(ledger), [rules('default = "deny"')])).differences) >= 2
    assert ledger.lines() == ran


async def test_context_restarts_are_repeated_without_their_context_item(ledger: Ledger) -> None:
    @tool(effect="none")
    async def picture() -> dict[str, object]:
        """Bring a picture."""
        return {"type": "context_restart_image", "enhanced_context_item": "a large picture"}

    restarts = ContextRestarts()
    async with Agent(
        Script(says(call("look", {"what": "a"})), says(call("picture")), says("I see.")),
        tools=[picture, *tools_of(ledger)],
        restart=restarts,
    ) as agent:
        await agent.run("Look.", scope=Scope(run=RUN))
        recorded = RunFile.of(agent.engine.journal, RUN, agent.engine.blobs)
    run = RecordedRun(recorded)
    assert (await run.played([picture, *tools_of(ledger)])).differences == ()
    assert (await run.played([picture, *tools_of(ledger)], [rules('default = "deny"')])).differences != ()


async def test_a_run_file_contains_no_redacted_value(tmp_path: Path, ledger: Ledger) -> None:
    model = Script(says("It is hunter2.", call("look", {"what": "hunter2"}, id="1")), says("Done."))
    async with Engine(tools_of(ledger), redactor=Hider()) as engine, Agent(model, engine) as agent:
        await agent.run("Say hunter2.", scope=Scope(run=RUN))
        recorded = RunFile.of(engine.journal, RUN, engine.blobs)
    path = tmp_path / "run.jsonl"
    path.write_bytes(recorded.encode())
    assert b"hunter2" not in path.read_bytes()
    assert (await RecordedRun.load(path).played(tools_of(ledger))).differences == ()
    assert Replay.of(RunFile.load(path), RUN, RunFile.load(path)).encode() == Replay.of(recorded, RUN, recorded).encode()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (b"", "is not a recorded run"),
        (b"{}\n", "is not a recorded run"),
        (b'{"callgate_run":9,"run":"r"}\n', "has format 9"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_not_a_recorded_run_is_refused(written: bytes | None, told: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    if written is not None:
        path.write_bytes(written)
    with pytest.raises(UsageError, match=told):
        RecordedRun.load(path)


async def test_an_edited_run_file_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes((await kept(ledger, [["ok"]])).encode().replace(b"saw a", b"saw b"))
    with pytest.raises(UsageError, match="Export it again"):
        RecordedRun.load(path)


async def test_an_incomplete_record_is_compared_up_to_its_end(ledger: Ledger) -> None:
    """A stop in the middle of an answer cannot be repeated; everything before it is compared."""
    gate = Gate()
    model = Script(says(call("look", {"what": "a"})), [gate])
    async with Agent(model, tools=tools_of(ledger)) as agent:
        running = asyncio.ensure_future(agent.run("Look.", conversation="c", scope=Scope(run=RUN)))
        await gate.reached.wait()
        agent.stop("c")
        await running
        recorded = RunFile.of(agent.engine.journal, RUN, agent.engine.blobs)
    run = RecordedRun(recorded)
    assert (await run.played(tools_of(ledger))).differences == ()
    assert "Call 0/0 of look" in (await run.played(tools_of(ledger), [rules('default = "deny"')])).differences[0]


async def test_calls_after_a_kill_are_repeated(ledger: Ledger) -> None:
    """The host continues after a kill: the next call belongs to another turn."""
    engines: list[Engine] = []
    tools = tools_of(ledger, engines)
    async with Engine(tools, run="bare", repair=True) as engine:
        engines.append(engine)
        for name, arguments in (("end_it", "{}"), ("look", '{"what": "a"}'), ("look", '{"what": "b"'), ("look", "{'what': 'c'}")):
            await engine.call(RawCall(name=name, arguments=arguments), Scope(run="bare", conversation="c"))
            engine.control.end_turn("c")
        recorded = RunFile.of(engine.journal, "bare", engine.blobs)
    run = RecordedRun(recorded)
    assert [one.ended for one in run.replay.calls] == ["aborted", "ok", "error", "ok"]
    assert (await run.played(tools)).differences == ()
    assert (await judge_again(run.replay, tools, [])).differences == ()
