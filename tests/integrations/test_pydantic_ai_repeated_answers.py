"""A host that goes on with a human's yes more than once, for somebody else, or while an identical call is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart

from callgate import Engine, Scope, SqliteJournal
from callgate.integrations.pydantic_ai import CallgateCapability
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

YES = DeferredToolResults(approvals={"c1": True})


class Payments:
    """An agent that writes each payment into a ledger file. A human has to allow each payment."""

    def __init__(self, folder: Path, needs_human: Callable[..., Any]) -> None:
        self.ledger = folder / "ledger.txt"
        self.engine = Engine(journal=SqliteJournal(folder / "calls.db"))
        options: Any = {"pay": {"requires_approval": needs_human}}
        gate = CallgateCapability(self.engine, options=options, scope=lambda ctx: Scope(principal=ctx.deps or "ann"))
        model = scripted([Call("pay", {"order": "A7"}, id="c1")], "done")
        self.agent = Agent(model, output_type=[str, DeferredToolRequests], capabilities=[gate])
        self.agent.tool_plain(self.pay)

    async def pay(self, order: str) -> str:
        """Pay an order."""
        with self.ledger.open("a") as ledger:
            ledger.write(f"{order}\n")
        return f"{order} paid"


class HoldsThird:
    """Requires a human for each call, and holds the third call that it is asked about."""

    def __init__(self) -> None:
        self.asked, self.go_on = 0, asyncio.Event()

    async def __call__(self, arguments: Mapping[str, object]) -> bool:
        self.asked += 1
        if self.asked == 3:
            await self.go_on.wait()
        return True


async def test_each_of_several_requests_with_one_yes_gets_the_result_of_the_one_payment(tmp_path: Path) -> None:
    payments = Payments(tmp_path, lambda arguments: True)
    async with payments.engine:
        first = await payments.agent.run("go")

        async def resume() -> Any:
            return await payments.agent.run(message_history=first.all_messages(), deferred_tool_results=YES)

        results = await asyncio.gather(*(resume() for _ in range(3)))
    assert [told_in(result.all_messages())["c1"].text for result in results] == ["A7 paid"] * 3
    assert payments.ledger.read_text() == "A7\n"


async def test_a_second_yes_asks_again_if_the_host_makes_the_messages_anew_without_their_times(tmp_path: Path) -> None:
    """A host that stores rows of its own has neither the provider's id of the message nor its time, which is another one each time."""

    def stored() -> list[ModelMessage]:
        call = ToolCallPart("pay", {"order": "A7"}, tool_call_id="c1")
        return [ModelRequest.user_text_prompt("go"), ModelResponse(parts=[call], conversation_id="ann-1")]

    payments = Payments(tmp_path, lambda arguments: True)
    async with payments.engine:
        await payments.agent.run("go", conversation_id="ann-1")
        first, second = [await payments.agent.run(message_history=stored(), deferred_tool_results=YES) for _ in range(2)]
    assert first.output == "done"
    assert isinstance(second.output, DeferredToolRequests)
    assert "was answered already" in second.output.metadata["c1"]["question"]
    assert payments.ledger.read_text() == "A7\n"


@pytest.mark.parametrize("yes", [True, ToolApproved(override_args={"order": "A7, half"})], ids=["as asked", "edited"])
async def test_a_yes_with_the_metadata_of_its_question_answers_no_other_question(yes: Any, tmp_path: Path) -> None:
    """A no comes first, then two clicks on yes. The first one asks anew, and nobody has seen that question when the second one comes."""
    payments = Payments(tmp_path, lambda arguments: True)
    async with payments.engine:
        first = await payments.agent.run("go")

        async def answer(said: Any, asked: DeferredToolRequests) -> Any:
            results = DeferredToolResults(approvals={"c1": said}, metadata=asked.metadata)
            return (await payments.agent.run(message_history=first.all_messages(), deferred_tool_results=results)).output

        assert isinstance(first.output, DeferredToolRequests)
        await answer(ToolDenied("too dear"), first.output)
        one, two = [await answer(yes, first.output) for _ in range(2)]
        assert not payments.ledger.exists()
        assert one.metadata["c1"]["approval_id"] == two.metadata["c1"]["approval_id"] != first.output.metadata["c1"]["approval_id"]
        assert "was answered already" in two.metadata["c1"]["question"]
        assert await answer(yes, two) == "done"
    assert payments.ledger.read_text() == ("A7\n" if yes is True else "A7, half\n")


async def test_a_second_users_yes_to_a_call_that_was_made_for_the_first_asks_that_user(tmp_path: Path) -> None:
    """Both have the page with the question open. A yes is for the user whose call the question was about."""
    payments = Payments(tmp_path, lambda arguments: True)
    async with payments.engine:
        first = await payments.agent.run("go", deps="ann")
        await payments.agent.run(message_history=first.all_messages(), deferred_tool_results=YES, deps="ann")
        second = await payments.agent.run(message_history=first.all_messages(), deferred_tool_results=YES, deps="eve")
    assert isinstance(second.output, DeferredToolRequests)
    assert "or another user. Run pay" in second.output.metadata["c1"]["question"]
    assert payments.ledger.read_text() == "A7\n"


async def test_one_yes_allows_one_payment_if_an_identical_call_of_the_run_uses_it_first(tmp_path: Path) -> None:
    third = HoldsThird()
    payments = Payments(tmp_path, third)
    async with payments.engine:
        first = await payments.agent.run("go", conversation_id="ann-1")
        go_on = asyncio.create_task(payments.agent.run(message_history=first.all_messages(), deferred_tool_results=YES))
        while third.asked < 3:  # the yes is recorded, and the call is made again
            await asyncio.sleep(0)
        other = asyncio.create_task(payments.agent.run("once more", conversation_id="ann-1"))
        while third.asked < 4:
            await asyncio.sleep(0)
        for _ in range(20):  # the other call is allowed by the yes, and waits for the one before it
            await asyncio.sleep(0)
        third.go_on.set()
        assert (await other).output == "done"
        result = await go_on
    assert isinstance(result.output, DeferredToolRequests)
    assert "was answered already" in result.output.metadata["c1"]["question"]
    assert payments.ledger.read_text() == "A7\n"
