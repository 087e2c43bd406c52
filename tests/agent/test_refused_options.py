"""What cannot be is refused where it is written, with what can."""

from __future__ import annotations

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
