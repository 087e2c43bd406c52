"""An approved call of Agent Framework that another process may have made: an engine with a journal in memory says so, and only then."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Agent, AgentSession, Content, Message, tool

from callgate import Engine, MemoryJournal, SqliteJournal
from callgate.integrations.agent_framework import callgate_middleware
from tests.integrations.agent_framework_agents import ScriptedClient
from tests.integrations.contract import Call

Saved = tuple[str, str]


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "callgate")
    return lambda: [one.getMessage() for one in caplog.records if one.name == "callgate"]


def agent_of(engine: Engine, made: list[str], *steps: Any, effect: Any = "once") -> Agent[Any]:
    async def pay(invoice: str) -> str:
        """Pay an invoice."""
        made.append(invoice)
        return f"{invoice} paid"

    middleware = callgate_middleware(engine, effects={"pay": effect})
    return Agent(client=ScriptedClient(*steps), tools=[tool(pay, approval_mode="always_require")], middleware=middleware)


async def ask(engine: Engine, made: list[str], **options: Any) -> Saved:
    """Return the saved session of a run that waits for a human, and the request."""
    session = AgentSession()
    agent = agent_of(engine, made, [Call("pay", {"invoice": "A7"})], "done", **options)
    (request,) = (await agent.run("go", session=session)).user_input_requests
    return json.dumps(session.to_dict()), json.dumps(request.to_dict())


async def go_on(engine: Engine, made: list[str], saved: Saved, *, approved: bool = True, **options: Any) -> None:
    answer = Content.from_dict(json.loads(saved[1])).to_function_approval_response(approved=approved)
    session = AgentSession.from_dict(json.loads(saved[0]))
    await agent_of(engine, made, "done", **options).run(Message("user", [answer]), session=session)


async def test_an_engine_that_has_not_seen_the_response_with_an_approved_call_says_once_that_its_journal_does_not_last(
    warned: Callable[[], list[str]],
) -> None:
    made: list[str] = []
    async with Engine() as engine:
        saved = await ask(engine, made)
        await go_on(engine, made, saved)
        assert not warned()
    async with Engine() as engine:
        for _ in range(2):
            await go_on(engine, made, saved)
    assert made == ["A7", "A7"]
    (said,) = warned()
    assert "from a response of the model that this engine has not seen" in said
    assert "SqliteJournal('calls.db')" in said


@pytest.mark.parametrize(
    ("journal", "options"),
    [("file", {}), ("memory", {"effect": "none"}), ("memory", {"approved": False})],
    ids=["the journal lasts", "the tool only reads", "the call is denied"],
)
async def test_nothing_is_said_if_nothing_can_be_repeated(
    warned: Callable[[], list[str]], tmp_path: Path, journal: str, options: dict[str, Any]
) -> None:
    def journaled() -> Any:
        return SqliteJournal(tmp_path / "calls.db") if journal == "file" else MemoryJournal()

    made: list[str] = []
    async with Engine(journal=journaled()) as engine:
        saved = await ask(engine, made)
    async with Engine(journal=journaled()) as engine:
        await go_on(engine, made, saved, **options)
    assert not warned()
