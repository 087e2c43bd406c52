"""A host that keeps its journal but does not name its runs is told that a restart would repeat effects."""

from __future__ import annotations

from pathlib import Path

import pytest

from callgate import Answered, Engine, Scope, SqliteJournal, Tool, tool
from tests.provider_responses.shop import claude, refund, stock

REFUND = ("refund", {"order": "A7"})
STOCK = ("stock", {"article": "lamp"})


@tool(key="refund:{order}")
def keyed(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


async def test_an_effect_in_a_run_without_a_name_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning is true: another engine of the journal pays again for the same message."""
    for _ in range(2):
        caplog.clear()
        async with Engine([stock, refund], journal=SqliteJournal(tmp_path / "calls.db")) as engine:
            for message_id in ("msg_1", "msg_2"):
                reply = await engine.respond(claude(REFUND, message_id=message_id), Scope(conversation="ann"))
                assert [one.result.metadata.replayed for one in reply.outcomes if isinstance(one, Answered)] == [False]
        (warning,) = [one.getMessage() for one in caplog.records if "without a name" in one.getMessage()]
        assert "refund has its effect again. Name the run, with the same name after a restart: Scope(run=...)" in warning


@pytest.mark.parametrize(
    ("tools", "asked", "scope", "in_file"),
    [
        ([refund], REFUND, Scope(run="chat-ann"), True),
        ([refund], REFUND, Scope(), False),
        ([stock], STOCK, Scope(), True),
        ([keyed], ("keyed", {"order": "A7"}), Scope(), True),
    ],
    ids=["a run with a name", "a journal in memory", "a tool that reads", "a tool with a key"],
)
async def test_nothing_is_said_where_nothing_would_be_repeated(
    tools: list[Tool], asked: tuple[str, dict[str, str]], scope: Scope, in_file: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(tools, journal=SqliteJournal(tmp_path / "calls.db") if in_file else None) as engine:
        await engine.respond(claude(asked), scope)
    assert "without a name" not in caplog.text
