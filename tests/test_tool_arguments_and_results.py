"""How a tool validates its own arguments, and how the values that it returns become results."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Engine, Scope, ValidationResult, tool
from tests.complete_tool import Complete
from tests.engine_calls import call, said


async def test_the_validator_of_a_tool_runs_after_its_schema() -> None:
    class Even(Complete):
        def validate_parameters(self, params: dict[str, Any]) -> ValidationResult:
            if params["n"] % 2:
                return ValidationResult(valid=False, errors=["n: expected an even number, got an odd one"])
            return ValidationResult(valid=True, warnings=["even is fine"], cleaned_params={"n": params["n"] + 100})

    async with Engine([Even()]) as engine:
        odd = await said(engine, call("complete", n=1), Scope(actor="a"))
        even = await said(engine, call("complete", n=2), Scope(actor="a"))
    assert odd.failure_class == "invalid_parameters"
    assert "even number" in odd.text
    assert even.data == 102
    assert "even is fine" in even.text


def test_a_validation_result_is_empty_by_default() -> None:
    found = ValidationResult(valid=True)
    assert (found.errors, found.warnings, found.cleaned_params) == ([], [], {})


async def test_an_execute_result_of_the_wrong_shape_is_an_invalid_result() -> None:
    returned: list[Any] = [None, "text", {"success": "yes"}, {"success": False, "error": 5}]

    class Returns(Complete):
        async def execute(self, actor: str, **params: Any) -> Any:
            return returned[params["n"]]

    async with Engine([Returns()]) as engine:
        for n in range(len(returned)):
            result = await said(engine, call("complete", n=n), Scope(actor="a"))
            assert result.failure_class == "invalid_result", returned[n]


async def test_a_function_may_return_none_as_a_successful_result() -> None:
    @tool(effect="none")
    async def nothing() -> None:
        """Return nothing."""

    async with Engine([nothing]) as engine:
        result = await said(engine, call("nothing"))
    assert result.success
    assert result.structured is None


async def test_the_standard_result_keys_are_read_and_other_keys_are_kept() -> None:
    class Full(Complete):
        async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
            return {"success": True, "data": [1], "message": "done", "end_turn": True, "image_metadata": {"w": 1}, "hint": "kept"}

    async with Engine([Full()]) as engine:
        result = await said(engine, call("complete", n=1), Scope(actor="a"))
    assert (result.data, result.message, result.end_turn, result.image_metadata) == ([1], "done", True, {"w": 1})
    assert '"hint":"kept"' in result.text


@pytest.mark.parametrize(
    ("schema", "value", "said_so"),
    [
        ({"type": "object"}, [1], "the result: expected an object, got [1]"),
        ({"enum": ["red"]}, "blue", 'the result: expected one of "red", got "blue"'),
        ({"type": "array", "items": {"type": "integer"}}, [1, "x"], '[1]: expected an integer, got "x"'),
        ({"required": ["n"]}, {}, "n: expected a value, got nothing: it is missing"),
    ],
)
async def test_an_output_schema_violation_is_explained_in_the_error(schema: dict[str, object], value: object, said_so: str) -> None:
    @tool(effect="none", output_schema=schema)
    async def give() -> Any:
        """Give."""
        return value

    async with Engine([give]) as engine:
        result = await said(engine, call("give"))
    assert result.error is not None
    assert result.error.startswith(f"give gave back what its output schema does not allow: {said_so}. The call did run")


async def test_an_output_schema_violation_is_an_invalid_result() -> None:
    @tool(effect="none", output_schema={"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]})
    async def count() -> Any:
        """Count."""
        return {"n": "many"}

    async with Engine([count]) as engine:
        result = await said(engine, call("count"))
    assert (result.failure_class, result.code) == ("invalid_result", "output_schema")


async def test_sync_async_and_awaitable_returning_tools_all_run() -> None:
    @tool(effect="none")
    def plain() -> str:
        """Plain."""
        return "plain"

    @tool(effect="none")
    async def waiting() -> str:
        """Waiting."""
        return "waiting"

    @tool(effect="none")
    def deferred() -> Any:
        """Return an awaitable."""
        return waiting.function()

    async with Engine([plain, waiting, deferred]) as engine:
        assert [(await said(engine, call(name))).text for name in ("plain", "waiting", "deferred")] == ["plain", "waiting", "waiting"]


def test_the_default_validate_parameters_checks_the_schema_of_the_tool() -> None:
    found = Complete().validate_parameters({"n": "x"})
    assert not found.valid
    assert "n" in found.errors[0]
    assert Complete().validate_parameters({"n": 1}).valid
