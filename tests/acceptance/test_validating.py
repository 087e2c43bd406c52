"""What a model is told about its arguments: every rule of a schema, in words that it can act on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, Tool, ToolResult, ValidationResult, tool
from callgate.testing import ManualClock
from tests.door import bodies, call, said


class Book(Tool):
    """A tool with every kind of rule."""

    name = "book"
    description = "Book a room."
    category = "safe_chain"
    requires_actor = False
    parameters = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "enum": ["Rome", "Oslo"]},
            "guest": {"type": "string", "required": True},
            "nights": {"type": "integer", "minimum": 1, "maximum": 14},
            "rate": {"type": "number"},
            "breakfast": {"type": "boolean"},
            "extras": {"type": "array", "items": {"type": "string"}},
            "address": {"type": "object"},
            "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
            "confirm": {"type": "boolean"},
            "email": {"type": "string"},
            "card": {"type": "string"},
            "voucher": {"type": "string"},
        },
        "required": ["city"],
        "if": {"properties": {"confirm": {"const": True}}, "required": ["confirm"]},
        "then": {"required": ["email"]},
        "not": {"required": ["card", "voucher"]},
    }

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"success": True, "data": params}


GOOD: dict[str, Any] = {"city": "Rome", "guest": "ann"}


async def booked(**arguments: Any) -> ToolResult:
    async with Engine([Book()]) as engine:
        result = await said(engine, call("book", **arguments))
        assert ("call.started" in {event.kind for event in engine.journal.read()}) is result.success
    return result


async def test_arguments_that_keep_every_rule_run() -> None:
    good = {**GOOD, "nights": 14, "rate": 9.5, "breakfast": True, "extras": ["tea"], "code": "ABC", "confirm": True, "email": "a@b"}
    assert (await booked(**good)).data == good


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"guest": "ann"}, 'city: expected one of "Rome", "Oslo", got nothing: it is missing; "Rome" would pass'),
        ({"city": "Rome"}, "guest: expected text, got nothing: it is missing"),
        ({**GOOD, "nights": "five"}, 'nights: expected an integer, got "five"'),
        ({**GOOD, "nights": True}, "nights: expected an integer, got true"),
        ({**GOOD, "nights": 2.5}, "nights: expected an integer, got 2.5"),
        ({**GOOD, "rate": "cheap"}, 'rate: expected a number, got "cheap"'),
        ({**GOOD, "breakfast": "maybe"}, 'breakfast: expected true or false, got "maybe"'),
        ({**GOOD, "guest": 5}, "guest: expected text, got 5"),
        ({**GOOD, "extras": "tea, milk"}, "extras: expected"),
        ({**GOOD, "address": [1]}, "address: expected"),
        ({**GOOD, "city": "Paris"}, 'city: expected one of "Rome", "Oslo", got "Paris"; "Rome" would pass'),
        ({**GOOD, "nights": 0}, "nights: expected an integer of at least 1, got 0; 1 would pass"),
        ({**GOOD, "nights": 15}, "nights: expected an integer of at most 14, got 15; 14 would pass"),
        ({**GOOD, "code": "abc"}, "code: expected text that matches '^[A-Z]{3}$', got \"abc\""),
        ({**GOOD, "confirm": True}, "email: expected text, which the other arguments call for, got nothing: it is missing"),
        ({**GOOD, "card": "1", "voucher": "2"}, "expected not card and voucher together"),
    ],
)
async def test_a_broken_rule_is_said_with_what_was_expected_and_what_came(arguments: dict[str, Any], sentence: str) -> None:
    result = await booked(**arguments)
    assert (result.failure_class, result.code, result.metadata.attempts) == ("invalid_parameters", "schema_invalid", 0)
    assert sentence in str(result.error)


@pytest.mark.parametrize("arguments", [{**GOOD, "nights": 1}, {**GOOD, "confirm": False}, {**GOOD, "card": "1"}, {**GOOD, "voucher": "2"}])
async def test_the_edge_of_a_rule_is_within_it(arguments: dict[str, Any]) -> None:
    assert (await booked(**arguments)).success


async def test_everything_that_is_wrong_is_said_at_once() -> None:
    """As sentences for the model, and as data beside them."""
    result = await booked(city="Paris", nights=99, breakfast="maybe", code="x")
    data: Any = result.structured
    assert {error["path"] for error in data["errors"]} == {"/city", "/guest", "/nights", "/breakfast", "/code"}
    assert all(error["path"].strip("/") in str(result.error) for error in data["errors"])
    assert next(error for error in data["errors"] if error["path"] == "/nights")["passes"] == 14


@pytest.mark.parametrize(
    ("name", "written", "meant"),
    [
        ("nights", "5", 5),
        ("nights", 5.0, 5),
        ("rate", "9.5", 9.5),
        ("breakfast", "true", True),
        ("breakfast", "False", False),
        ("extras", '["tea"]', ["tea"]),
        ("address", '{"street": "x"}', {"street": "x"}),
    ],
)
async def test_what_was_written_as_text_is_put_right_and_noted(name: str, written: object, meant: object) -> None:
    result = await booked(**GOOD, **{name: written})
    data: Any = result.data
    assert (type(data[name]), data[name]) == (type(meant), meant)
    assert [(note.kind, note.path) for note in result.metadata.notes] == [("coerced", f"/{name}")]


async def test_a_tools_own_validator_speaks_after_the_schema_and_its_whole_answer_counts() -> None:
    """Its errors refuse, its warnings are shown, its cleaned arguments are the ones that run."""

    class Even(Book):
        def validate_parameters(self, params: dict[str, Any]) -> ValidationResult:
            nights = params.get("nights", 2)
            if nights % 2:
                return ValidationResult(valid=False, errors=["nights: only even numbers; 2 would pass", "guest: must be a member"])
            return ValidationResult(valid=True, warnings=["Oslo is cheaper"], cleaned_params={**params, "nights": nights + 10})

    async with Engine([Even()]) as engine:
        odd = await said(engine, call("book", **GOOD, nights=1))
        wrong = await said(engine, call("book", **GOOD, nights="one"))
        even = await said(engine, call("book", **GOOD, nights=2))
        ran_with = bodies(engine, "call.verdict")[0]["arguments"]
    assert odd.failure_class == "invalid_parameters"
    assert "only even numbers; 2 would pass" in str(odd.error)
    assert "must be a member" in str(odd.error)
    assert "expected an integer" in str(wrong.error)
    assert even.data == ran_with == {**GOOD, "nights": 12}
    assert "Oslo is cheaper" in even.text
    assert [(note.kind, note.text) for note in even.metadata.notes] == [("warning", "Oslo is cheaper")]


def test_a_validation_result_has_four_fields_three_of_them_empty_by_default() -> None:
    assert ValidationResult.__struct_fields__ == ("valid", "errors", "warnings", "cleaned_params")
    one, other = ValidationResult(valid=True), ValidationResult(valid=True)
    one.errors.append("changed")
    assert (other.errors, other.warnings, other.cleaned_params) == ([], [], {})


async def test_a_tool_without_a_validator_of_its_own_is_held_to_its_schema() -> None:
    assert "validate_parameters" not in vars(Book)
    assert (await booked(city="Paris", guest="ann")).failure_class == "invalid_parameters"


async def test_a_refusal_names_the_keys_that_were_none_and_the_one_that_was_meant() -> None:
    @tool(effect="none")
    async def say(text: str, loud: bool = False) -> str:
        """Say it."""
        return text

    async with Engine([say]) as engine:
        result = await said(engine, RawCall(name="say", arguments='{"Text": "hi", "mood": 1}'))
    assert (result.status, result.code) == ("error", "schema_invalid")
    assert result.error is not None
    assert result.error.splitlines()[1:] == [
        "- text: expected text, got nothing: it is missing",
        "- 'Text' is no argument and was dropped. Did you mean 'text'?",
        "- 'mood' is no argument and was dropped.",
    ]


async def test_unexpected_keys_are_dropped_before_every_attempt_and_noted() -> None:
    seen: list[set[str]] = []

    @tool(effect="none")
    async def look(text: str, depth: int = 1) -> str:
        """Look, and fail twice."""
        seen.append({text})
        if len(seen) < 3:
            raise ConnectionError("reset")
        return text

    clock = ManualClock()
    async with Engine([look], clock=clock) as engine:
        task = asyncio.create_task(said(engine, call("look", text="a", colour="red", size=3)))
        while not task.done():
            await asyncio.sleep(0)
            clock.advance(5)
        result = await task
    assert (result.success, result.metadata.attempts) == (True, 3)
    assert sorted((note.kind, note.path) for note in result.metadata.notes) == [("dropped", "/colour"), ("dropped", "/size")]
    assert seen == [{"a"}] * 3


async def test_an_invalid_call_is_data_that_the_model_can_put_right_on_its_next_step() -> None:
    async with Engine([Book()]) as engine:
        first = await said(engine, RawCall(name="book", arguments='{"city": "Paris", "guest": "ann"}', id="c1"))
        errors: Any = first.structured
        again = {"city": errors["errors"][0]["passes"], "guest": "ann"}
        second = await said(engine, call("book", id="c2", **again), Scope(iteration=1))
    assert (first.status, second.status) == ("error", "ok")
    assert "Correct these and call it again" in first.text
