"""The model reads which of its arguments a tool did not get, because the tool may have done something else than it meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callgate import Engine, Suspended, Text, Tool, UsageError, tool
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


# Strict tools, which drop nothing


def strict_function() -> Tool:
    @tool(strict=True)
    async def pay(invoice: str, amount: float) -> str:
        """Pay an invoice."""
        return invoice

    return pay


class StrictPay(Pay):
    """A strict tool class."""

    strict = True


def strict_import() -> Tool:
    def pay(invoice: str, amount: float) -> str:
        """Pay an invoice."""
        return invoice

    (made,) = import_tools([pay], options={"pay": {"strict": True}})
    return made


@pytest.mark.parametrize("make", [strict_function, StrictPay, strict_import], ids=["function", "class", "imported"])
async def test_a_strict_tool_refuses_unknown_arguments_and_its_schema_says_so(make: Callable[[], Tool]) -> None:
    async with Engine([make()]) as engine:
        refused = await said(engine, call("pay", invoice="A7", amount=100, currency="JPY"))
        accepted = await said(engine, call("pay", invoice="A7", amount="100"))
        (offered,) = engine.schemas("openai")
    assert (refused.code, "currency" in refused.text, accepted.status) == ("schema_invalid", True, "ok")
    assert offered["function"]["parameters"]["additionalProperties"] is False
    assert not make().validate_parameters({"invoice": "A7", "amount": 1, "currency": "JPY"}).valid


def test_a_strict_tool_whose_schema_cannot_be_closed_is_refused() -> None:
    class Elsewhere(StrictPay):
        parameters = Pay.parameters | {"anyOf": [{"properties": {"currency": {"type": "string"}}}]}

    with pytest.raises(UsageError, match=r"Tool 'pay' .* is strict, but its schema mentions currency outside of its properties"):
        Engine([Elsewhere])


async def test_the_question_to_a_human_names_the_dropped_arguments() -> None:
    @tool(requires_approval=True)
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        return invoice

    async with Engine([pay]) as engine:
        outcome = await engine.call(call("pay", invoice="A7", currency="JPY"))
    assert isinstance(outcome, Suspended)
    assert outcome.question == 'Run pay with {"invoice":"A7"} [\'currency\' is not an argument and was dropped.]?'
