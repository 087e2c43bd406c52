"""What `callgate log list` shows of questions whose answer a framework has told the model, and of those that a resumed run asks again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.tools import Tool

from callgate import Ask, Engine, SqliteJournal
from callgate.integrations.pydantic_ai import CallgateCapability, recorded_answers
from callgate.recorded_calls import find_tool_calls
from tests.cli.shell import shell
from tests.integrations.contract import Call, WrittenPolicy
from tests.integrations.test_pydantic_ai_contract import scripted


def pay(order: str) -> str:
    """Pay an order."""
    return f"{order} paid"


def _engine(path: Path) -> Engine:
    return Engine(policies=[WrittenPolicy({"pay": Ask(question="Pay it?", rule="ask")})], journal=SqliteJournal(path))


def _agent(engine: Engine) -> Agent[None, Any]:
    model = scripted([Call("pay", {"order": "A7"})], "done")
    return Agent(model, tools=[Tool(pay)], capabilities=[CallgateCapability(engine)], output_type=[str, DeferredToolRequests])


@pytest.fixture
async def journal(tmp_path: Path) -> Path:
    """A journal with one question, about which a run was resumed once before its framework told the model the no."""
    path = tmp_path / "calls.db"
    async with _engine(path) as engine:
        first = await _agent(engine).run("go")
        again = await _agent(engine).run(message_history=first.all_messages(), deferred_tool_results=recorded_answers(first.output))
        denied = DeferredToolResults(approvals={"c1": ToolDenied("too dear")})
        assert again.output.metadata == first.output.metadata
    async with _engine(path) as engine:
        assert (await _agent(engine).run(message_history=first.all_messages(), deferred_tool_results=denied)).output == "done"
    return path


def test_a_call_whose_no_the_framework_has_told_is_listed_as_denied_and_not_as_asked(journal: Path, tmp_path: Path) -> None:
    listed = shell(tmp_path, "log", "list", "--json", "--journal", str(journal)).lines
    assert [(one["status"], one["code"], one["error"]) for one in listed] == [("error", "human_denied", "a human said no: too dear")] * 2
    assert shell(tmp_path, "log", "list", "--json", "--field", "status=asked", "--journal", str(journal)).lines == []
    assert {(one.status, one.reason) for one in find_tool_calls(SqliteJournal(journal))} == {("error", "a human said no: too dear")}


async def test_a_question_that_a_resumed_run_asks_again_is_listed_as_the_same_question(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with _engine(path) as engine:
        first = await _agent(engine).run("go")
        await _agent(engine).run(message_history=first.all_messages(), deferred_tool_results=recorded_answers(first.output))
    asked = first.output.metadata["c1"]["approval_id"]
    calls = shell(tmp_path, "log", "list", "--json", "--journal", str(path)).lines
    assert [one["question"] for one in calls] == [asked, asked]
    first_row, second_row = [line for line in shell(tmp_path, "log", "list", "--journal", str(path)).out.splitlines() if "asked" in line]
    assert "again" not in first_row
    assert f"again, the question of {asked}" in second_row
