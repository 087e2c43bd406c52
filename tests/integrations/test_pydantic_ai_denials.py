"""Calls that a human has denied through Pydantic AI, of tools that the agent knows by another name than the engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset

from callgate import Engine, SqliteJournal, inbox
from callgate.integrations import import_tools
from callgate.integrations.pydantic_ai import CallgateToolset
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted, told_in

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
