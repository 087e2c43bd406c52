"""What cannot be is refused where it is written, with what can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callgate.agent import Agent, Budget, Settings
from callgate.agent.settings import Prices
from callgate.errors import UsageError
from callgate.messages import UserMessage
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
        (Settings(budget=Budget(iterations=-1)), "Budget(iterations=-1) is no limit. Give 0 or more, or None for none."),
        (Settings(budget=Budget(cost=float("nan")), prices=Prices(input=1.0)), "Budget(cost=nan) is no limit."),
        (Settings(output_retries=-1), "Settings(output_retries=-1) is no limit. Give 0 or more."),
        (Settings(budget=Budget(cost=0.5)), "Budget(cost=0.5) would never be used up: nothing has a price."),
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
    [{"engine": "x"}, {"settings": {"budget": 1}}, {"settings": {}}, {"stream_limits": 5}, {"stuck": True}, {"preset": ["agent"]}],
    ids=str,
)
def test_what_an_agent_cannot_be_made_of_is_refused_by_name(given: dict[str, Any]) -> None:
    """DESIGN, errors: one sentence that names the thing and the next step, and none of it is taken for the default."""
    with pytest.raises(UsageError, match=rf"Agent\({next(iter(given))}=.*(Give|Choose)"):
        Agent(Script(), **given)


@pytest.mark.parametrize("model", [None, 5, object])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(UsageError, match=r"is no model\. Give 'provider:model'"):
        Agent(model)


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda agent: agent.run("Go.", conversation=5), r"Agent.run\(conversation=5\)"),
        (lambda agent: agent.run("Go.", scope="here"), r"Agent.run\(scope='here'\)"),
        (lambda agent: agent.resume(None), r"Agent.resume\(run=None\)"),
    ],
    ids=["conversation", "scope", "resume"],
)
async def test_what_cannot_be_asked_of_an_agent_is_refused_by_name(ask: Callable[[Agent], Awaitable[object]], named: str) -> None:
    async with Agent(Script()) as agent:
        with pytest.raises(UsageError, match=named):
            await ask(agent)
