"""The model reads which of its arguments a tool did not get, because the tool may have done something else than it meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callgate import Engine, Text, Tool, tool
from callgate.builtins import workspace_tools
from callgate.integrations import import_tools
from tests.engine_calls import call, said

LINE = "Note: 'currency' is not an argument and was dropped. pay takes amount, invoice."


def decorated(runner: str = "inline") -> Tool:
    @tool(runner=runner)
    async def pay(invoice: str, amount: float) -> dict[str, object]:
        """Pay an invoice."""
        return {"paid": invoice, "amount": amount}

    return pay


def returning_parts() -> Tool:
    @tool
    def pay(invoice: str, amount: float) -> list[Text]:
        """Pay an invoice."""
        return [Text(text="paid"), Text(text=invoice)]

    return pay


def raising() -> Tool:
    @tool
    def pay(invoice: str, amount: float) -> str:
        """Pay an invoice."""
        raise ValueError("no such invoice")

    return pay


def imported() -> Tool:
    def pay(invoice: str, amount: float) -> str:
        """Pay an invoice."""
        return invoice

    (made,) = import_tools([pay])
    return made


class Pay(Tool):
    """A tool class."""

    name = "pay"
    description = "Pay an invoice."
    category = "safe_chain"
    requires_actor = False
    parameters: Any = {
        "type": "object",
        "properties": {"invoice": {"type": "string"}, "amount": {"type": "number"}},
        "required": ["invoice", "amount"],
    }

    async def execute(self, actor: str, invoice: str, amount: float) -> dict[str, Any]:  # type: ignore[override]
        return {"success": True, "data": invoice}


FAMILIES: dict[str, Callable[[], Tool]] = {
    "decorated": decorated,
    "with parts": returning_parts,
    "that raises": raising,
    "imported": imported,
    "class": Pay,
}


@pytest.mark.parametrize("make", FAMILIES.values(), ids=FAMILIES)
async def test_the_model_reads_once_which_arguments_were_dropped_and_which_the_tool_takes(make: Callable[[], Tool]) -> None:
    async with Engine([make()]) as engine:
        result = await said(engine, call("pay", invoice="A7", amount=100, currency="JPY"))
        assert result.text.count("currency") == 1
        assert LINE in result.text.splitlines()
        clean = await said(engine, call("pay", invoice="A8", amount="100"))
    assert "Note:" not in clean.text, "a conversion loses nothing"


async def test_many_dropped_arguments_are_told_in_one_short_line() -> None:
    async with Engine([decorated()]) as engine:
        result = await said(engine, call("pay", invoice="A7", amount=1, **{f"more{number}": "x" * 9_000 for number in range(30)}))
    (line,) = [line for line in result.text.splitlines() if line.startswith("Note:")]
    assert ("more were dropped. pay takes amount, invoice." in line, len(line) < 400) == (True, True)


async def test_a_refused_call_names_a_dropped_argument_only_in_its_error() -> None:
    async with Engine([decorated()]) as engine:
        result = await said(engine, call("pay", amount=1, currency="JPY"))
    assert (result.code, result.text.count("currency")) == ("schema_invalid", 1)


async def test_a_built_in_tool_names_the_arguments_that_it_takes() -> None:
    async with Engine(workspace_tools()) as engine:
        text = (await said(engine, call("list_files", depth_limit=3))).text
    assert "Note: 'depth_limit' is not an argument and was dropped. list_files takes " in text
