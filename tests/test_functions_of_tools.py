"""Functions that a tool's author declares beside a tool: mistakes are told when the tool is registered, or to the author by the log."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Engine, UsageError, tool
from tests.effect_ledger import Ledger
from tests.effect_tools import refunding
from tests.engine_calls import call, said


@pytest.mark.parametrize("option", ["key", "reads", "writes"])
def test_a_function_of_single_arguments_is_refused_when_the_tool_is_registered(option: str, ledger: Ledger) -> None:
    settings: Any = {option: lambda order, cents: f"refund:{order}"}
    with pytest.raises(UsageError, match=rf"has {option}=.*takes order, cents; it is called with all .* Write it as def {option}\("):
        Engine([refunding(ledger, **settings)])


def test_a_function_whose_parameter_is_called_as_the_arguments_usually_are_is_accepted() -> None:
    @tool(requires_approval=lambda args: True, key=lambda args, scope: str(args["args"]))
    def run(args: str) -> str:
        """Run."""
        return args

    Engine([run]).close_sync()


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (lambda arguments, scope: arguments["oder"], "It raised KeyError: 'oder'"),
        (lambda arguments, scope: 5, "returned 5 instead of a text"),
    ],
    ids=["raises", "no text"],
)
async def test_a_key_function_that_fails_is_logged_for_the_tools_author(
    key: Any, told: str, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine([refunding(ledger, key=key)]) as engine:
        await said(engine, call("refund", order="A7"))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("refund was not run: the function that makes the key of its effect" in text and told in text for text in warnings)
