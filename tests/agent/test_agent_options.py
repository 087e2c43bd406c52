"""An agent takes either the options of an engine or an engine. Editors and type checkers know every option."""

from __future__ import annotations

import gc
import inspect
from pathlib import Path
from typing import Any

import pytest

from callgate import Allow, Engine, Limits, MemoryJournal, RawCall, SqliteJournal, before_call, tool
from callgate.agent import Agent, AgentRunOptions, AgentStreamOptions, EngineOptions, Settings
from callgate.errors import UsageError
from callgate.stage_types import ValidatedCall
from tests.agent.scripted_model import Script, call, says


@tool(effect="none")
async def look() -> str:
    """Look."""
    return "seen"


class Counting:
    """A policy that allows every call and counts the calls."""

    def __init__(self) -> None:
        self.asked = 0

    async def decide(self, call: ValidatedCall) -> Allow:
        self.asked += 1
        return Allow()


async def test_an_agent_accepts_the_options_of_its_engine() -> None:
    journal, policy = MemoryJournal(), Counting()
    hooked: list[str] = []

    @before_call("look")
    async def note(call: ValidatedCall) -> None:
        hooked.append(call.tool.name)

    model = Script(says(call("look")), says("Done."))
    async with Agent(model, tools=[look], journal=journal, policies=[policy], hooks=[note], timeout_s=5) as agent:
        result = await agent.run("Go.")
    assert (result.text, policy.asked, hooked) == ("Done.", 1, ["look"])
    assert next(event.kind for event in journal.read(run=result.run)) == "run.began"
    assert agent.engine.journal is journal


async def test_an_agent_closes_only_the_engine_that_it_created() -> None:
    async with Agent(Script(), tools=[look]) as own:
        pass
    with pytest.raises(UsageError, match="closed"):
        await own.engine.call(RawCall(name="look"))
    async with Engine([look]) as engine:
        async with Agent(Script(says("One.")), engine=engine) as first:
            assert (await first.run("Go.")).text == "One."
        async with Agent(Script(says("Two.")), engine) as second:
            assert (await second.run("Go.")).text == "Two."


@pytest.mark.parametrize(
    "given", [{"tools": [look]}, {"policies": []}, {"journal": None}, {"limits": Limits(), "timeout_s": 3}], ids=",".join
)
async def test_engine_options_given_together_with_an_engine_are_refused_by_name(given: dict[str, Any]) -> None:
    """It would be unclear whether the option or the given engine applies."""
    async with Engine() as engine:
        with pytest.raises(UsageError, match=rf"^Agent was given an engine, and {', '.join(given)} for a new one\. "):
            Agent(Script(), engine, **given)


async def test_an_agent_with_only_a_model_has_an_engine_without_tools() -> None:
    async with Agent(Script(says("Hello."))) as agent:
        assert (await agent.run("Hi.")).text == "Hello."
        assert list(agent.engine.tools) == []


async def test_agent_limits_and_settings_are_combined_and_a_contradiction_is_refused() -> None:
    async with Agent(Script(), limits=Limits(content_bytes=4_096), settings=Settings(soft_warn=3, dangerous_per_tick=2)) as agent:
        limits = agent.engine.limits
        assert (limits.content_bytes, limits.soft_warn_iteration, limits.dangerous_per_tick) == (4_096, 3, 2)
    async with Agent(Script(), limits=Limits(dangerous_per_tick=5), preset="chat") as agent:
        assert agent.engine.limits.dangerous_per_tick == 5
    with pytest.raises(UsageError, match=r"^Settings\.soft_warn is 3, and the engine's Limits\.soft_warn_iteration is 7: "):
        Agent(Script(), limits=Limits(soft_warn_iteration=7), settings=Settings(soft_warn=3))


@pytest.mark.parametrize("given", [{"preset": "chat"}, {"preset": "tick"}, {"settings": Settings(dangerous_per_tick=1)}], ids=str)
async def test_a_limit_of_dangerous_calls_that_a_given_engine_does_not_have_is_refused(given: dict[str, Any]) -> None:
    """Otherwise, the limit would silently have no effect."""
    for most in (None, 5):
        async with Engine(limits=Limits(dangerous_per_tick=most)) as engine:
            with pytest.raises(UsageError, match=rf"^Settings\.dangerous_per_tick is 1, .* Limits\.dangerous_per_tick is {most}: "):
                Agent(Script(), engine, **given)
    async with Engine(limits=Limits(dangerous_per_tick=1)) as engine:
        Agent(Script(), engine, **given)


def test_engine_options_have_the_names_and_types_of_the_engines_parameters() -> None:
    """Compares every name and type, so that an option added to `Engine` later is not missing here."""
    taken = inspect.signature(Engine).parameters
    assert {name: one.annotation for name, one in taken.items()} == _annotations(EngineOptions)


def test_run_and_stream_options_match_the_parameters_of_agent_run() -> None:
    taken = {name: one.annotation for name, one in inspect.signature(Agent.run).parameters.items() if one.kind is one.KEYWORD_ONLY}
    assert taken == _annotations(AgentRunOptions)
    assert taken.keys() - {"on_event"} == _annotations(AgentStreamOptions).keys()


def test_no_agent_option_except_output_is_annotated_as_any() -> None:
    for function in (Agent, Agent.run, Agent.run_sync, Agent.stream, Agent.follow_up, Agent.resume):
        loose = [name for name, one in inspect.signature(function).parameters.items() if one.annotation == "Any"]
        assert loose in ([], ["output"]), function  # `output` takes any form of annotation, which no static type describes


async def test_an_agent_records_its_run_in_a_sqlite_file(tmp_path: Path) -> None:
    async with Agent(Script(says("Done.")), journal=SqliteJournal(tmp_path / "runs.db")) as agent:
        result = await agent.run("Go.")
    assert result.recorded > 0


def _annotations(options: type) -> dict[str, object]:
    return {name: getattr(one, "__forward_arg__", one) for name, one in options.__annotations__.items()}


def test_the_parts_of_an_agent_hold_no_reference_to_it() -> None:
    """An agent is one class with its parts as fields; no part refers to the agent, directly or through another part."""
    agent = Agent(Script(), tools=[look])
    assert Agent.__mro__ == (Agent, object)
    seen: dict[int, object] = {}
    waiting: list[object] = list(vars(agent).values())
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and type(one).__module__.startswith("callgate.agent"):
            seen[id(one)] = one
            waiting += gc.get_referents(one)
            waiting += [part for held in gc.get_referents(one) if type(held) is dict for part in held.values()]
    assert agent not in seen.values()
    assert {"AgentRuns", "RunExecutor", "RunResumer", "TurnFactory"} <= {type(one).__name__ for one in seen.values()}
