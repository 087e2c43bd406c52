"""Registration and lookup of tools by name, alias, category and layer, and the runners that they use."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, SqliteJournal, UsageError, tool
from callgate.protocols import Execution, RunRequest
from callgate.tools import ToolRegistry
from tests.complete_tool import Complete
from tests.engine_calls import call, said


@pytest.mark.parametrize("attribute", ["name", "description", "parameters", "category"])
def test_a_tool_without_a_required_attribute_is_refused(attribute: str) -> None:
    lacking = type("Lacking", (Complete,), {attribute: None if attribute in ("parameters", "category") else ""})
    with pytest.raises(UsageError, match=f"has no {attribute}"):
        ToolRegistry([lacking()])


def test_a_second_tool_of_the_same_name_is_refused_and_both_places_are_named() -> None:
    @tool
    def complete() -> None:
        """A second tool."""

    with pytest.raises(UsageError, match=r"tests\.complete_tool\.Complete, .*test_registry\.py:\d+"):
        ToolRegistry([Complete(), complete])


def test_a_tool_hidden_by_an_earlier_layer_is_reported() -> None:
    registry = ToolRegistry([Complete()])
    registry.register(Complete(), layer="mcp")
    found = registry.get("complete")
    assert found is not None
    assert found.layer == "builtin"
    assert len(registry.shadowed) == 1
    assert "hidden" in registry.shadowed[0]


@pytest.mark.parametrize("order", [["mcp", "capability", "builtin"], ["builtin", "capability", "mcp"]])
def test_a_built_in_tool_hides_tools_of_the_same_name_in_later_layers(order: list[Any]) -> None:
    registry = ToolRegistry()
    for layer in order:
        registry.register(Complete(), layer=layer)
    found = registry.get("complete")
    assert found is not None
    assert found.layer == "builtin"


async def test_a_tool_of_a_later_layer_is_found_by_the_engine() -> None:
    async with Engine() as engine:
        engine.register(Complete(), layer="mcp")
        assert (await said(engine, call("complete", n=3), Scope(actor="ann"))).data == 3


def test_an_alias_resolves_to_its_tool_and_cannot_take_a_tool_name() -> None:
    @tool(aliases=("old_name",))
    def fresh() -> None:
        """Do."""

    registry = ToolRegistry([fresh])
    found = registry.get("old_name")
    assert found is not None
    assert found.name == "fresh"

    @tool(aliases=("fresh",))
    def other() -> None:
        """Do."""

    with pytest.raises(UsageError, match="Alias 'fresh'"):
        registry.register(other)


@pytest.mark.parametrize("alias", ["", " "])
def test_an_alias_is_a_name(alias: str) -> None:
    """An empty one would be found for a call without a name."""

    @tool(aliases=("well", alias))
    def fresh() -> None:
        """Do."""

    with pytest.raises(UsageError, match=re.escape(f"has the alias {alias!r}. Give a name")):
        ToolRegistry([fresh])


def test_tools_are_found_by_name_and_category_and_all_names_are_listed() -> None:
    @tool(category="terminal")
    def say() -> None:
        """Say."""

    registry = ToolRegistry([Complete(), say])
    assert registry.get("nobody") is None
    assert registry.by_category("terminal") == ["say"]
    assert registry.by_category("dangerous") == []
    assert registry.names() == ["complete", "say"]


def test_the_schemas_have_the_form_of_openai_tools() -> None:
    (item,) = ToolRegistry([Complete()]).openai()
    assert item == {
        "type": "function",
        "function": {"name": "complete", "description": "A complete tool.", "parameters": Complete.parameters},
    }


def test_a_process_tool_that_cannot_be_imported_is_refused_with_the_fix() -> None:
    @tool(runner="process")
    def inner() -> None:
        """Do nothing."""

    with pytest.raises(UsageError, match="Move it to the top level"):
        Engine([inner])


class Elsewhere:
    """A custom runner."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.closed = False

    async def run(self, request: RunRequest) -> Execution:
        self.ran.append(request.context.uid)
        return Execution(status="returned", value={"from": "elsewhere", "arguments": request.approved.call.arguments})

    async def close(self) -> None:
        self.closed = True


async def test_an_engine_runs_tools_with_a_custom_runner_and_closes_it() -> None:
    @tool(runner="elsewhere", effect="none")
    async def far(n: int) -> None:
        """Run remotely."""

    runner = Elsewhere()
    async with Engine([far], runners={"elsewhere": runner}) as engine:
        result = await said(engine, call("far", n="3"))
    assert result.structured == {"from": "elsewhere", "arguments": {"n": 3}}
    assert runner.ran == [result.uid]
    assert runner.closed


def test_an_unknown_runner_is_refused_with_a_list_of_the_known_ones() -> None:
    @tool(runner="gpu")
    async def do() -> None:
        """Do."""

    with pytest.raises(UsageError, match=r"no runner 'gpu'.*inline, thread, process"):
        Engine([do])
    with pytest.raises(UsageError, match="cannot be called thread"):
        Engine(runners={"thread": Elsewhere()})


async def test_close_sync_closes_an_engine_that_was_never_used(tmp_path: Path) -> None:
    await asyncio.to_thread(Engine(journal=SqliteJournal(tmp_path / "journal.db")).close_sync)
    await SqliteJournal(tmp_path / "journal.db").close()
