"""What cannot be is refused where it is written, with what can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callgate.agent import Agent, Budget, Compaction, Deliberate, Settings, keep_last
from callgate.agent.settings import Prices
from callgate.agent.stuck import StuckLimits
from callgate.decide import LoopRules
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.messages import UserMessage
from callgate.stream import StreamLimits
from tests.agent.scripts import Script, says


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preset": "chatty"}, r"Agent\(preset='chatty'\) is not known. Choose one of: agent, chat, tick, worker."),
        ({"text_calls": "yes"}, r"Choose one of: auto, fallback, never."),
        ({"tools": [print]}, r"<built-in function print> is no tool. Put @tool over the function"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_can(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Agent(Script(), **options)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(budget=Budget(iterations=-1)), "Budget(iterations=-1) is no limit. Give a whole number, 0 or more, or None for none."),
        (Settings(budget=Budget(cost=float("nan")), prices=Prices(input=1.0)), "Budget(cost=nan) is no limit."),
        (Settings(output_retries=-1), "Settings(output_retries=-1) is no limit. Give a whole number, 0 or more."),
        (Settings(budget=Budget(cost=0.5)), "Budget(cost=0.5) would never be used up: nothing has a price."),
        (Settings(budget=Budget(calls=1.5)), "Budget(calls=1.5) is no limit. Give a whole number, 0 or more, or None for none."),  # type: ignore[arg-type]
        (Settings(budget=Budget(calls=True)), "Budget(calls=True) is no limit."),
        (Settings(budget=Budget(wall_s="x")), "Budget(wall_s='x') is no limit. Give 0 or more, or None for none."),  # type: ignore[arg-type]
        (Settings(budget=5), "Settings(budget=5) cannot work. Give a Budget."),  # type: ignore[arg-type]
        (Settings(prices=Prices(input=-1.0)), "Prices(input=-1.0) is no limit. Give 0 or more."),
        (Settings(early_start="no"), "Settings(early_start='no') cannot work. Give True or False."),  # type: ignore[arg-type]
        (Settings(when_spent="stop"), "Settings(when_spent='stop') cannot work. Choose one of: end, answer."),  # type: ignore[arg-type]
        (Settings(rules=LoopRules(errors_in_a_row=0)), "LoopRules(errors_in_a_row=0) is no limit. Give a whole number, 1 or more"),
        (Settings(rules=LoopRules(end_after_text="say")), "LoopRules(end_after_text='say') cannot work. Give a list of texts."),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_limits_nothing_is_refused(settings: Settings, said: str) -> None:
    """A budget that is silently none is found out on the bill."""
    with pytest.raises(UsageError) as caught:
        Agent(Script(), settings=settings)
    assert str(caught.value).startswith(said)


async def test_a_history_in_a_providers_form_is_refused_with_what_reads_it() -> None:
    """It would be sent as nothing, and the model would answer without it."""
    async with Agent(Script(says("done"))) as agent:
        with pytest.raises(UsageError, match=r"^Message 1 of the history is a dict\. .*from_native makes them of OpenAI's\.$"):
            await agent.run("x", history=[UserMessage("a"), {"role": "user", "content": "b"}])  # type: ignore[list-item]
        assert (await agent.run("x")).status == "completed"


@pytest.mark.parametrize("task", [None, 5, ["x"], b"x"])
async def test_a_task_that_is_no_message_is_refused_before_anything_begins(task: Any) -> None:
    async with Agent(Script(says("done"))) as agent:
        with pytest.raises(UsageError, match="Give text, or a UserMessage"):
            await agent.run(task, conversation="c")
        assert (await agent.run("x", conversation="c")).text == "done"


@pytest.mark.parametrize(
    "given",
    [
        {"engine": "x"},
        {"settings": {"budget": 1}},
        {"settings": {}},
        {"stream_limits": 5},
        {"stuck": True},
        {"preset": ["agent"]},
        {"tools": len},
        {"tools": "builtin"},
        {"policies": 5},
        {"exit_tools": "done"},
        {"exit_tools": ["done"]},
        {"instructions": 5},
        {"deliberate": True},
        {"compact": 1_000},
        {"max_tokens": "x"},
        {"max_tokens": 0},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"extra": [1]},
        {"dialect": "nope"},
        {"bios": "yes"},
    ],
    ids=str,
)
def test_what_an_agent_cannot_be_made_of_is_refused_by_name(given: dict[str, Any]) -> None:
    """DESIGN, errors: one sentence that names the thing and the next step, and none of it is taken for the default."""
    with pytest.raises(UsageError, match=rf"Agent\({next(iter(given))}=.*(Give|Choose)"):
        Agent(Script(), **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stuck": StuckLimits(hint=0)}, r"^StuckLimits\(hint=0\) is no limit\. Give a whole number, 1 or more\.$"),
        ({"stuck": StuckLimits(stop=-1)}, r"^StuckLimits\(stop=-1\)"),
        ({"stream_limits": StreamLimits(idle_s=0)}, r"^StreamLimits\(idle_s=0\) is no limit\. Give more than 0\.$"),
        ({"stream_limits": StreamLimits(first_s=float("nan"))}, r"^StreamLimits\(first_s=nan\) is no limit\."),
        ({"deliberate": Deliberate(always="look")}, r"^Deliberate\(always='look'\) cannot work\. Give a list of texts\.$"),  # type: ignore[arg-type]
        ({"deliberate": Deliberate(triggers={"look": "see"})}, r"^Deliberate\(triggers=.* Give a dict of lists of texts\.$"),  # type: ignore[dict-item]
        ({"deliberate": Deliberate(thought_log=5)}, r"^Deliberate\(thought_log=5\) cannot work\. Give a function, or None\.$"),  # type: ignore[arg-type]
        ({"compact": Compaction(compact=keep_last(3), at_tokens="x")}, r"^Compaction\(at_tokens='x'\) is no limit\."),  # type: ignore[arg-type]
        ({"compact": Compaction(compact=5, at_tokens=5)}, r"^Compaction\(compact=5\) cannot work\. Give a function\.$"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_would_count_for_something_else_is_refused_with_its_field(given: dict[str, Any], said: str) -> None:
    """A guard that refuses the first call, a wait that is over at once: nobody meant that."""
    with pytest.raises(UsageError, match=said):
        Agent(Script(), **given)


def test_tools_without_a_list_around_them_are_refused_by_an_engine_too() -> None:
    with pytest.raises(UsageError, match=r"^Engine\(tools=\.\.\.\) was given a builtin_function_or_method; it must be a list of them\.$"):
        Engine(len)  # type: ignore[arg-type]


async def test_instructions_that_come_out_as_no_text_fail_the_run_and_say_so() -> None:
    async with Agent(Script(says("done")), instructions=lambda left: 5) as agent:  # type: ignore[arg-type, return-value]
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == (
        "error",
        "The function of Agent(instructions=...) returned 'int'; it must return text, the system prompt.",
    )


@pytest.mark.parametrize("model", [None, 5, object])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(UsageError, match=r"is no model\. Give 'provider:model'"):
        Agent(model)


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda agent: agent.run("Go.", conversation=5), r"Agent.run\(conversation=5\)"),
        (lambda agent: agent.run("Go.", scope="here"), r"Agent.run\(scope='here'\)"),
        (lambda agent: agent.run("Go.", history=5), r"Agent.run\(history=5\) cannot work\. Give a list of messages"),
        (lambda agent: agent.run("Go.", history={"role": "user"}), r"Agent.run\(history="),
        (lambda agent: agent.run("Go.", trigger=[]), r"Agent.run\(trigger=\[\]\) cannot work"),
        (lambda agent: agent.run("Go.", expose=5), r"Agent.run\(expose=5\) cannot work\. Give a list of tools' names"),
        (lambda agent: agent.run("Go.", expose="look"), r"Agent.run\(expose='look'\) cannot work\. Give a list of tools' names"),
        (lambda agent: agent.run("Go.", expose=[5]), r"Agent.run\(expose=5\) cannot work"),
        (lambda agent: agent.run("Go.", on_event=5), r"Agent.run\(on_event=5\) cannot work\. Give a function"),
        (lambda agent: agent.run("Go.", reflect="no"), r"Agent.run\(reflect='no'\) cannot work\. Give True or False"),
        (lambda agent: agent.run("Go.", deliberate="yes"), r"Agent.run\(deliberate='yes'\) cannot work"),
        (lambda agent: agent.follow_up("Go.", conversation=None), r"Agent.follow_up\(conversation=None\) cannot work"),
        (lambda agent: agent.resume(None), r"Agent.resume\(run=None\)"),
        (lambda agent: agent.resume("run-1", on_event=5), r"Agent.resume\(on_event=5\)"),
    ],
)
async def test_what_cannot_be_asked_of_an_agent_is_refused_by_name(ask: Callable[[Agent], Awaitable[object]], named: str) -> None:
    async with Agent(Script()) as agent:
        with pytest.raises(UsageError, match=named):
            await ask(agent)


async def test_a_stream_takes_no_listener_and_says_where_the_events_are() -> None:
    async with Agent(Script()) as agent:
        with pytest.raises(UsageError, match=r"^Agent\.stream\(on_event=\.\.\.\) is not taken: the events are what it yields\."):
            async for _ in agent.stream("Go.", on_event=print):
                pass
