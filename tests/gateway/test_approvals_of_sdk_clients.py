"""Clients made with the official SDK ask their users about calls, in both eras of the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mcp_types
import pytest

from callgate import inbox
from mcp import Client, StdioServerParameters
from tests.forked_programs import forked_program
from tests.gateway.test_approvals import command, paid

pytestmark = [pytest.mark.process]

modes = pytest.mark.parametrize("mode", ["legacy", "auto"])


def client(tmp_path: Path, mode: Any, answer: mcp_types.ElicitResult | None) -> Client:
    """Return a client whose user gives this answer; without one, it shows no forms."""
    asked: list[str] = []

    async def elicit(context: object, params: Any) -> mcp_types.ElicitResult:
        asked.append(params.message)
        assert "Tool: pay" in params.message
        assert answer is not None
        return answer

    _, *words = command(tmp_path)
    program, *words = forked_program(*words)
    server = StdioServerParameters(command=program, args=words, cwd=Path(__file__).parents[2])
    return Client(server, mode=mode, elicitation_callback=None if answer is None else elicit)


def first_text(result: mcp_types.CallToolResult) -> str:
    first = result.content[0]
    assert isinstance(first, mcp_types.TextContent)
    return first.text


def form(**content: Any) -> mcp_types.ElicitResult:
    return mcp_types.ElicitResult(action="accept", content=content)


@modes
async def test_a_call_that_its_user_approves_runs(mode: str, tmp_path: Path) -> None:
    async with client(tmp_path, mode, form(approve=True, reason="fine")) as session:
        result = await session.call_tool("pay", {"amount": 3})
    assert first_text(result) == "paid 10"
    assert (result.is_error, paid(tmp_path)) == (False, ["10"])


@modes
@pytest.mark.parametrize("answer", [form(approve=False), mcp_types.ElicitResult(action="decline")], ids=["no", "declined"])
async def test_a_call_that_its_user_refuses_does_not_run(mode: str, answer: mcp_types.ElicitResult, tmp_path: Path) -> None:
    async with client(tmp_path, mode, answer) as session:
        result = await session.call_tool("pay", {"amount": 3})
    assert (result.is_error, paid(tmp_path)) == (True, [])
    assert "the user of ada said no" in first_text(result)


@modes
@pytest.mark.parametrize("answer", [None, mcp_types.ElicitResult(action="cancel")], ids=["no forms", "cancelled"])
async def test_a_call_that_its_user_does_not_answer_waits(mode: str, answer: mcp_types.ElicitResult | None, tmp_path: Path) -> None:
    async with client(tmp_path, mode, answer) as session:
        result = await session.call_tool("pay", {"amount": 3})
        (waiting,) = inbox.waiting(tmp_path / "journal.db")
    assert (result.is_error, paid(tmp_path)) == (True, [])
    assert waiting.approval in first_text(result)
