"""Calls that a human has denied through Pydantic AI: what the engine records of them, and what the model reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset

from callgate import Engine, NotDone, Scope, SqliteJournal, inbox
from callgate.integrations import import_tools
from callgate.integrations.pydantic_ai import CallgateCapability, CallgateToolset
from tests.integrations.contract import Call, Told
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

TOO_LATE = "The denial came too late: pay was started before, as ann-1/0/2"
Renames = Callable[[AbstractToolset[Any]], AbstractToolset[Any]]


@pytest.mark.parametrize(
    "renames",
    [lambda toolset: toolset.prefixed("bank"), lambda toolset: toolset.renamed({"bank_pay": "pay"})],
    ids=["prefixed", "renamed"],
)
async def test_the_denial_of_a_call_of_a_renamed_tool_answers_its_question_and_no_other(renames: Renames, tmp_path: Path) -> None:
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return order

    def made(engine: Engine) -> Agent[None, Any]:
        message = [Call("bank_pay", {"order": "A7"}, id="c1"), Call("bank_pay", {"order": "B8"}, id="c2")]
        toolset = renames(CallgateToolset([pay], engine))
        return Agent(scripted(message, "done"), toolsets=[toolset], output_type=[str, DeferredToolRequests])

    def opened() -> Engine:
        tools = import_tools([Tool(pay)], options={"pay": {"requires_approval": True}})
        return Engine(tools, journal=SqliteJournal(tmp_path / "calls.db"))

    async with opened() as engine:
        first = await made(engine).run("go")
    answers = DeferredToolResults(approvals={"c1": ToolDenied("too dear"), "c2": True})
    async with opened() as engine:
        stored = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
        second = await made(engine).run(message_history=stored, deferred_tool_results=answers)
        answered = [json.loads(event.body) for event in engine.journal.read() if event.kind == "approval.answered"]
    assert {id: told.text for id, told in told_in(second.all_messages()).items()} == {"c1": "too dear", "c2": "B8"}
    assert [(one["status"], one["details"].get("reason", "")) for one in answered] == [("allowed", ""), ("refused", "too dear")]
    assert inbox.waiting(tmp_path / "calls.db") == []
    assert paid == ["B8"]


class Bank:
    """An agent that pays in the name of its user, and writes each payment into a ledger file. A human has to allow each payment."""

    def __init__(self, folder: Path, end: str, redactor: Any = None) -> None:
        self.ledger, self.read = folder / "ledger.txt", dict[str, Told]()
        self._calls, self._end, self._redactor = folder / "calls.db", end, redactor

    async def run(self, user: str, **go_on: Any) -> Any:
        """Run the agent in an engine of its own, as another process would."""
        async with Engine(journal=SqliteJournal(self._calls), redactor=self._redactor) as engine:
            gate = CallgateCapability(engine, options={"pay": {"requires_approval": True}}, scope=lambda ctx: Scope(principal=ctx.deps))
            agent = Agent(FunctionModel(self._answer), deps_type=str, output_type=[str, DeferredToolRequests], capabilities=[gate])
            agent.tool(self.pay)
            return await agent.run(deps=user, **go_on)

    async def pay(self, ctx: RunContext[str], order: str) -> str:
        """Pay an order."""
        if self._end == "not done":
            raise NotDone("the bank is closed")
        with self.ledger.open("a") as ledger:
            ledger.write(f"{ctx.deps} {order}\n")
        if self._end == "failed":
            raise OSError("the line broke")
        return f"{order} paid"

    def _answer(self, history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.read = told_in(history)
        asks = ModelResponse(parts=[ToolCallPart("pay", {"order": "A7"}, tool_call_id="c1")])
        return ModelResponse(parts=[TextPart("done")]) if self.read else asks


@pytest.mark.parametrize(
    ("end", "user", "told"),
    [
        ("paid", "ann", f"too dear\n{TOO_LATE}, and has succeeded. Its result:\nA7 paid"),
        ("failed", "ann", f"too dear\n{TOO_LATE}, and its outcome is not known. It may have taken effect."),
        ("not done", "ann", "too dear"),
        ("paid", "eve", "too dear"),
    ],
    ids=["paid", "not known", "nothing happened", "for somebody else"],
)
async def test_a_model_reads_that_a_call_was_made_before_a_human_denied_it(end: str, user: str, told: str, tmp_path: Path) -> None:
    bank = Bank(tmp_path, end)
    asked = await bank.run("ann", user_prompt="go", conversation_id="ann-1")
    stored = ModelMessagesTypeAdapter.validate_json(asked.all_messages_json())
    await bank.run("ann", message_history=stored, deferred_tool_results=DeferredToolResults(approvals={"c1": True}))
    for _ in range(2):
        denied = DeferredToolResults(approvals={"c1": ToolDenied("too dear")})
        await bank.run(user, message_history=stored, deferred_tool_results=denied)
        assert bank.read["c1"].text.startswith(told)
        assert bank.read["c1"].text.count("too late") == told.count("too late")
    assert bank.ledger.exists() == (end != "not done")
    assert end == "not done" or bank.ledger.read_text() == "ann A7\n"


class HidesUser:
    def redact(self, data: bytes) -> bytes:
        return data.replace(b"bob", b"***")


async def test_a_model_reads_that_a_denial_came_too_late_also_if_the_journal_hides_the_user(tmp_path: Path) -> None:
    bank = Bank(tmp_path, "paid", HidesUser())
    asked = await bank.run("bob", user_prompt="go", conversation_id="ann-1")
    for answer in (True, ToolDenied("too dear")):
        results = DeferredToolResults(approvals={"c1": answer})
        await bank.run("bob", message_history=asked.all_messages(), deferred_tool_results=results)
    assert bank.read["c1"].text == f"too dear\n{TOO_LATE}, and has succeeded. Its result:\nA7 paid"
    assert bank.ledger.read_text() == "bob A7\n"
