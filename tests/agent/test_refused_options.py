"""Invalid options are refused where they are written, and the error names the valid ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import pytest

from callgate import EventQuery, RetryPolicy, Scope, before_call, tool
from callgate.agent import Agent, Budget, Compaction, ContextRestarts, Deliberate, Settings, keep_last, summarise
from callgate.agent.loop_settings import ModelSettings, Prices
from callgate.agent.repetition import StuckLimits
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.loop_decision import LoopRules
from callgate.messages import UserMessage
from callgate.models.http_transport import Retries
from callgate.stream import StreamLimits
from tests.agent.scripted_model import Script, says


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"preset": "chatty"}, r"Agent\(preset='chatty'\): it must be one of 'agent', 'chat', 'tick', 'worker'\."),
        ({"text_calls": "yes"}, r"it must be one of 'auto', 'fallback', 'never'\."),
        ({"tools": [print]}, r"<built-in function print> is not a tool. Put @tool over the function"),
    ],
)
def test_an_invalid_option_value_is_refused_with_the_allowed_values(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Agent(Script(), **options)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Budget(iterations=-1), "Budget(iterations=-1): it must be a whole number from 0 or None."),
        (lambda: Budget(cost=float("nan")), "Budget(cost=nan): it must be a number from 0 or None."),
        (lambda: Settings(output_retries=-1), "Settings(output_retries=-1): it must be a whole number from 0."),
        (lambda: Settings(budget=Budget(cost=0.5)), "Budget(cost=0.5) would never be used up: nothing has a price."),
        (lambda: Budget(calls=1.5), "Budget(calls=1.5): it must be a whole number from 0 or None."),  # type: ignore[arg-type]
        (lambda: Budget(calls=True), "Budget(calls=True): it must be a whole number"),
        (lambda: Budget(wall_s="x"), "Budget(wall_s='x'): it must be a finite number of seconds from 0 or None."),  # type: ignore[arg-type]
        (lambda: Settings(budget=5), "Settings(budget=5): it must be a Budget."),  # type: ignore[arg-type]
        (lambda: Settings(budget={}), "Settings(budget={}): it must be a Budget."),  # type: ignore[arg-type]
        (lambda: Prices(input=-1.0), "Prices(input=-1.0): it must be a number from 0."),
        (lambda: Settings(early_start="no"), "Settings(early_start='no'): it must be True or False."),  # type: ignore[arg-type]
        (lambda: Settings(when_spent="stop"), "Settings(when_spent='stop'): it must be one of 'answer', 'end'."),  # type: ignore[arg-type]
        (lambda: LoopRules(errors_in_a_row=0), "LoopRules(errors_in_a_row=0): it must be a whole number from 1 or None."),
        (lambda: LoopRules(end_after_text="say"), "LoopRules(end_after_text='say'): it must be a list of texts."),  # type: ignore[arg-type]
        (lambda: ModelSettings(max_tokens="x"), "ModelSettings(max_tokens='x'): it must be a whole number from 1 or None."),  # type: ignore[arg-type]
        (lambda: ModelSettings(max_tokens=0), "ModelSettings(max_tokens=0): it must be a whole number from 1 or None."),
        (lambda: ModelSettings(temperature="hot"), "ModelSettings(temperature='hot'): it must be a finite number"),  # type: ignore[arg-type]
        (lambda: ModelSettings(temperature=float("nan")), "ModelSettings(temperature=nan): it must be a finite number"),
        (
            lambda: ModelSettings(extra=[1]),  # type: ignore[arg-type]
            "ModelSettings(extra=[1]): it must be a dict by the names of the provider's request body",
        ),
        (lambda: StuckLimits(hint=0), "StuckLimits(hint=0): it must be a whole number from 1."),
        (lambda: StuckLimits(stop=-1), "StuckLimits(stop=-1): it must be"),
        (lambda: Prices(output=Decimal(3)), "Prices(output=Decimal('3')): it must be a number from 0."),  # type: ignore[arg-type]
        (lambda: Retries(max_retries=-1), "Retries(max_retries=-1): it must be a whole number from 0."),
        (lambda: Retries(base_s="1"), "Retries(base_s='1'): it must be a finite number of seconds from 0."),  # type: ignore[arg-type]
        (lambda: StreamLimits(idle_s=0), "StreamLimits(idle_s=0): it must be a finite number of seconds above 0."),
        (lambda: StreamLimits(first_s=float("nan")), "StreamLimits(first_s=nan): it must be"),
        (lambda: Deliberate(always="look"), "Deliberate(always='look'): it must be a list of texts."),  # type: ignore[arg-type]
        (
            lambda: Deliberate(triggers={"look": "see"}),  # type: ignore[dict-item]
            "Deliberate(triggers={'look': 'see'}): it must be a dict of lists of texts.",
        ),
        (lambda: Deliberate(thought_log=5), "Deliberate(thought_log=5): it must be a function or None."),  # type: ignore[arg-type]
        (lambda: Compaction(compact=keep_last(3), at_tokens="x"), "Compaction(at_tokens='x'): it must be a whole number from 1."),  # type: ignore[arg-type]
        (lambda: Compaction(compact=5, at_tokens=5), "Compaction(compact=5): it must be a function."),  # type: ignore[arg-type]
        (lambda: keep_last("x"), "keep_last(count='x'): it must be a whole number from 1."),  # type: ignore[arg-type]
        (lambda: summarise(5), "summarise(write=5): it must be a function."),  # type: ignore[arg-type]
        (lambda: ContextRestarts(ttl_s="x"), "ContextRestarts(ttl_s='x'): it must be a finite number of seconds above 0."),  # type: ignore[arg-type]
    ],
)
def test_invalid_limits_and_settings_are_refused_when_they_are_created(made: Callable[[], object], said: str) -> None:
    """A limit that silently has no effect is noticed only on the bill, and a limit of zero repetitions would refuse every call."""
    with pytest.raises(UsageError) as caught:
        made()
    assert str(caught.value).startswith(said)


MODEL: Any = Script()


async def hears_later(event: object) -> None:
    raise AssertionError("never awaited")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Budget(iteration=1), "Budget has no option 'iteration'; did you mean 'iterations'? It takes iterations, calls, "),  # type: ignore[call-arg]
        (lambda: Budget("x"), "Budget was given 'x' without a name. By name it takes iterations=..., calls=..., "),  # type: ignore[arg-type, call-arg]
        (lambda: RetryPolicy(retries=5), "RetryPolicy has no option 'retries'. It takes attempts, base_s, max_s, multiplier, jitter."),  # type: ignore[call-arg]
        (lambda: Compaction(), "Compaction lacks compact, at_tokens. It takes compact, at_tokens, estimate, timeout_s."),  # type: ignore[call-arg]
        (lambda: EventQuery(kind="x"), "EventQuery has no option 'kind'; did you mean 'kinds'? It takes run, call, "),  # type: ignore[call-arg]
        (lambda: Agent(MODEL, tool=[]), "Agent has no option 'tool'; did you mean 'tools'? It takes model, engine, instructions, "),  # type: ignore[call-arg]
        (lambda: Agent(MODEL, max_iterations=5), "Agent has no option 'max_iterations'; did you mean 'settings'? It takes model, "),  # type: ignore[call-arg]
        (lambda: Agent(), "Agent lacks model. It takes model, engine, instructions, "),  # type: ignore[call-arg]
        (lambda: Agent(MODEL, None, []), "Agent was given [] without a name. By name it takes instructions=..., output=..., "),  # type: ignore[arg-type, call-arg]
        (lambda: Engine(policy=[]), "Engine has no option 'policy'; did you mean 'policies'? It takes tools, servers, policies, "),  # type: ignore[call-arg]
        (lambda: Engine([], []), "Engine was given [] without a name. By name it takes servers=..., policies=..., hooks=..., "),  # type: ignore[call-arg]
        (lambda: tool(efect="none"), "@tool has no option 'efect'; did you mean 'effect'? It takes name, description, "),  # type: ignore[call-overload]
        (
            lambda: before_call("pay", prio=3),  # type: ignore[call-arg]
            "before_call has no option 'prio'; did you mean 'priority'? It takes ",
        ),
        (
            lambda: ContextRestarts(ttl=5),  # type: ignore[call-arg]
            "ContextRestarts has no option 'ttl'; did you mean 'ttl_s'? It takes ",
        ),
        (lambda: Agent(MODEL).run_sync("x", max_iterations=5), "Agent.run has no option 'max_iterations'. It takes task, conversation, "),  # type: ignore[call-arg]
    ],
)
def test_unknown_missing_and_positional_options_are_refused_with_the_option_names(made: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        made()
    assert str(caught.value).startswith(said)


def test_a_type_error_raised_by_an_argument_is_not_reported_as_a_wrong_option() -> None:
    class Odd:
        def __iter__(self) -> None:
            raise TypeError("odd")

    with pytest.raises(TypeError, match=r"^odd$"):
        Engine(Odd())  # type: ignore[arg-type]


async def test_a_history_of_provider_dictionaries_is_refused_and_from_native_is_named() -> None:
    """The provider would not receive such a message, and the model would answer without it."""
    async with Agent(Script(says("done"))) as agent:
        with pytest.raises(UsageError, match=r"^Message 1 of the history is a dict\. .*from_native makes them of OpenAI's\.$"):
            await agent.run("x", history=[UserMessage("a"), {"role": "user", "content": "b"}])  # type: ignore[list-item]
        assert (await agent.run("x")).status == "completed"


@pytest.mark.parametrize("task", [None, 5, ["x"], b"x"])
async def test_a_task_of_the_wrong_type_is_refused_before_the_run_starts(task: Any) -> None:
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
        {"limits": 5},
        {"policies": 5},
        {"exit_tools": "done"},
        {"exit_tools": ["done"]},
        {"instructions": 5},
        {"deliberate": True},
        {"compact": 1_000},
        {"model_settings": {"max_tokens": 5}},
        {"dialect": "nope"},
        {"system_text": "yes"},
    ],
    ids=str,
)
def test_agent_options_of_the_wrong_type_are_refused_by_name(given: dict[str, Any]) -> None:
    """One sentence names the wrong option and the next step. An invalid value never selects the default."""
    with pytest.raises(UsageError, match=rf"^Agent\({next(iter(given))}=.*: it must be "):
        Agent(Script(), **given)


def test_an_engine_refuses_tools_that_are_not_a_list() -> None:
    with pytest.raises(UsageError, match=r"^Engine\(tools=\.\.\.\) was given a builtin_function_or_method; it must be a list of them\.$"):
        Engine(len)  # type: ignore[arg-type]


async def test_an_instructions_function_that_returns_no_text_fails_the_run_with_a_reason() -> None:
    async with Agent(Script(says("done")), instructions=lambda left: 5) as agent:  # type: ignore[arg-type, return-value]
        result = await agent.run("x")
    assert (result.turn_status, result.reason) == (
        "error",
        "The function of Agent(instructions=...) returned 'int'; it must return text, the system prompt.",
    )


@pytest.mark.parametrize("model", [None, 5, object])
def test_a_value_that_is_not_a_model_is_refused(model: Any) -> None:
    with pytest.raises(UsageError, match=r"is not a model\. Give 'provider:model'"):
        Agent(model)


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda agent: agent.run("Go.", conversation=5), r"Agent.run\(conversation=5\)"),
        (lambda agent: agent.run("Go.", scope="here"), r"Agent.run\(scope='here'\)"),
        (lambda agent: agent.run("Go.", scope=None), r"Agent.run\(scope=None\): it must be a Scope"),
        (lambda agent: agent.run("Go.", conversation="a", scope=Scope(conversation="b")), "was given conversation='a' and a scope with"),
        (lambda agent: agent.run("Go.", history=5), r"Agent.run\(history=5\): it must be a list of messages"),
        (lambda agent: agent.run("Go.", history={"role": "user"}), r"Agent.run\(history="),
        (lambda agent: agent.run("Go.", trigger=[]), r"Agent.run\(trigger=\[\]\): it must be"),
        (lambda agent: agent.run("Go.", expose=5), r"Agent.run\(expose=5\): it must be a list of tools' names"),
        (lambda agent: agent.run("Go.", expose="look"), r"Agent.run\(expose='look'\): it must be a list of tools' names"),
        (lambda agent: agent.run("Go.", expose=[5]), r"Agent.run\(expose=\[5\]\): it must be a list of tools' names"),
        (lambda agent: agent.run("Go.", on_event=5), r"Agent.run\(on_event=5\): it must be a function"),
        (lambda agent: agent.run("Go.", on_event=hears_later), r"Agent.run\(on_event=.*\): it must be a plain function.* agent.stream"),
        (lambda agent: agent.run("Go.", reflect="no"), r"Agent.run\(reflect='no'\): it must be True or False"),
        (lambda agent: agent.run("Go.", scene="no"), r"Agent.run\(scene='no'\): it must be True or False"),
        (lambda agent: agent.run("Go.", deliberate="yes"), r"Agent.run\(deliberate='yes'\): it must be"),
        (lambda agent: agent.follow_up("Go.", conversation=None), r"Agent.follow_up\(conversation=None\): it must be"),
        (lambda agent: agent.resume(None), r"Agent.resume\(run=None\)"),
        (lambda agent: agent.resume("run-1", on_event=5), r"Agent.resume\(on_event=5\)"),
    ],
)
async def test_arguments_of_run_follow_up_and_resume_of_the_wrong_type_are_refused_by_name(
    ask: Callable[[Agent], Awaitable[object]], named: str
) -> None:
    async with Agent(Script()) as agent:
        with pytest.raises(UsageError, match=named):
            await ask(agent)


async def test_agent_stream_refuses_on_event_and_says_that_it_yields_the_events() -> None:
    async with Agent(Script()) as agent:
        with pytest.raises(UsageError, match=r"^Agent\.stream\(on_event=\.\.\.\) is not taken: the events are what it yields\."):
            async for _ in agent.stream("Go.", on_event=print):  # type: ignore[call-arg]
                pass


def test_tools_that_are_given_one_by_one_or_twice_are_refused_with_what_to_do() -> None:
    @tool
    def look() -> str:
        """Look."""
        return ""

    with pytest.raises(UsageError, match=r"Give several tools in one list\."):
        Engine(look, look)  # type: ignore[call-arg, arg-type]
    with pytest.raises(UsageError, match=r"is registered already\. Give each tool once"):
        Engine([look, look])
