"""Runs of Pydantic AI whose calls may be made again with nobody knowing of the first time: the log says so, and only then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import RunContext, Tool

from callgate import Engine, MemoryJournal, Scope, SqliteJournal
from callgate.integrations.pydantic_ai import CallgateCapability
from tests.integrations.contract import Call
from tests.integrations.test_pydantic_ai_contract import scripted

Options = dict[str, Any]
PAY = [Call("pay", {"invoice": "A7"})]


class DeprecatedDurableModel(WrapperModel):
    """Stands for the model that DBOSAgent or TemporalAgent gives its agent."""


class ModelOfPrefectAgent(WrapperModel):
    """Stands for the model that PrefectAgent gives its agent."""


DeprecatedDurableModel.__module__ = "pydantic_ai.durable_exec.dbos._model"
ModelOfPrefectAgent.__module__ = "pydantic_ai.durable_exec.prefect._model"


@pytest.fixture
def made() -> list[str]:
    return []


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "callgate")
    return lambda: [one.getMessage() for one in caplog.records if one.name == "callgate"]


def agent_of(engine: Engine, made: list[str], *, asks: bool = False, effect: Any = "once", scope: Scope | None = None) -> Agent[Any, Any]:
    async def pay(invoice: str) -> str:
        """Pay an invoice."""
        made.append(invoice)
        return f"{invoice} paid"

    gated = CallgateCapability(engine, effects={"pay": effect}, scope=scope or Scope())
    tools: Any = [Tool(pay, requires_approval=asks)]
    return Agent(scripted(PAY, "done", PAY, "done"), output_type=[str, DeferredToolRequests], tools=tools, capabilities=[gated])


async def ask(engine: Engine, made: list[str], **options: Any) -> tuple[bytes, DeferredToolResults]:
    """Return the saved messages of a run that waits for a human, and their yes."""
    result = await agent_of(engine, made, asks=True, **options).run("go")
    assert isinstance(result.output, DeferredToolRequests)
    approvals: dict[str, Any] = {one.tool_call_id: True for one in result.output.approvals}
    return result.all_messages_json(), DeferredToolResults(approvals=approvals)


async def go_on(engine: Engine, made: list[str], saved: tuple[bytes, DeferredToolResults], **options: Any) -> None:
    history = ModelMessagesTypeAdapter.validate_json(saved[0])
    await agent_of(engine, made, asks=True, **options).run(message_history=history, deferred_tool_results=saved[1])


async def test_an_engine_that_has_not_seen_the_run_of_an_approved_call_says_once_that_its_journal_does_not_last(
    made: list[str], warned: Callable[[], list[str]]
) -> None:
    async with Engine() as engine:
        saved = await ask(engine, made)
        await go_on(engine, made, saved)
        assert not warned()
    async with Engine() as engine:
        await go_on(engine, made, saved)
        await go_on(engine, made, await ask(engine, made))
    assert made == ["A7"] * 3
    (said,) = warned()
    assert "from a run that this engine has not seen" in said
    assert "SqliteJournal('calls.db')" in said


@pytest.mark.parametrize(("journal", "effect"), [("file", "once"), ("memory", "none")])
async def test_nothing_is_said_if_the_journal_lasts_or_the_tool_only_reads(
    made: list[str], warned: Callable[[], list[str]], tmp_path: Path, journal: str, effect: str
) -> None:
    def journaled() -> Any:
        return SqliteJournal(tmp_path / "calls.db") if journal == "file" else MemoryJournal()

    async with Engine(journal=journaled()) as engine:
        saved = await ask(engine, made, effect=effect)
    for _ in range(2):
        async with Engine(journal=journaled()) as engine:
            await go_on(engine, made, saved, effect=effect)
    assert len(made) == (1 if journal == "file" else 2)
    assert not warned()


async def test_nothing_is_said_of_the_new_calls_of_a_conversation_that_another_process_began(
    made: list[str], warned: Callable[[], list[str]]
) -> None:
    async with Engine() as engine:
        saved = (await agent_of(engine, made).run("go")).all_messages_json()
    async with Engine() as engine:
        await agent_of(engine, made).run("again", message_history=ModelMessagesTypeAdapter.validate_json(saved))
    assert made == ["A7", "A7"]
    assert not warned()


async def test_a_durable_agent_is_told_that_a_journal_in_memory_does_not_last(
    made: list[str], warned: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunContext, "in_durable_context", True)
    async with Engine() as engine:
        for _ in range(2):
            await agent_of(engine, made).run("go")
    (said,) = warned()
    assert "runs in a durable workflow" in said
    assert "SqliteJournal('calls.db')" in said


@pytest.mark.parametrize(("options", "run", "times"), [({}, {}, 1), ({}, {"conversation_id": "c"}, 0), ({"scope": Scope(run="r")}, {}, 0)])
async def test_a_deprecated_durable_agent_is_told_to_name_its_conversation_or_its_run(
    made: list[str], warned: Callable[[], list[str]], tmp_path: Path, options: Options, run: Options, times: int
) -> None:
    async with Engine(journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        for _ in range(2):
            agent = agent_of(engine, made, **options)
            await agent.run("go", model=DeprecatedDurableModel(scripted(PAY, "done")), **run)
    assert len(warned()) == times
    assert all("begins a new conversation each time" in one and "conversation_id=..." in one for one in warned())


async def test_a_prefect_agent_with_a_conversation_is_told_that_its_calls_are_made_again(
    made: list[str], warned: Callable[[], list[str]], tmp_path: Path
) -> None:
    async with Engine(journal=SqliteJournal(tmp_path / "calls.db")) as engine:
        for _ in range(2):
            await agent_of(engine, made).run("go", model=ModelOfPrefectAgent(scripted(PAY, "done")), conversation_id="c")
    (said,) = warned()
    assert "asks the model again each time that a flow is retried" in said
    assert "PrefectDurability" in said
