"""Tests of argument validation: every schema rule produces a message that the model can act on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, Tool, ToolResult, ValidationResult, tool
from callgate.calls import Effect
from callgate.testing import ManualClock
from tests.engine_calls import call, said, verdicts


class Book(Tool):
    """A tool whose schema contains every kind of rule."""

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


async def test_arguments_that_satisfy_every_rule_run() -> None:
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
        ({**GOOD, "nights": 0}, "nights: expected an integer of at least 1, got 0"),
        ({**GOOD, "nights": 15}, "nights: expected an integer of at most 14, got 15"),
        ({**GOOD, "code": "abc"}, "code: expected text that matches '^[A-Z]{3}$', got \"abc\""),
        ({**GOOD, "confirm": True}, "email: expected text, which the other arguments call for, got nothing: it is missing"),
        ({**GOOD, "card": "1", "voucher": "2"}, "expected not card and voucher together"),
    ],
)
async def test_a_violated_rule_is_reported_with_expected_and_actual_value(arguments: dict[str, Any], sentence: str) -> None:
    result = await booked(**arguments)
    assert (result.failure_class, result.code, result.metadata.attempts) == ("invalid_parameters", "schema_invalid", 0)
    assert sentence in str(result.error)


@pytest.mark.parametrize("arguments", [{**GOOD, "nights": 1}, {**GOOD, "confirm": False}, {**GOOD, "card": "1"}, {**GOOD, "voucher": "2"}])
async def test_boundary_values_of_a_rule_are_valid(arguments: dict[str, Any]) -> None:
    assert (await booked(**arguments)).success


async def test_all_problems_are_reported_at_once() -> None:
    """Problems are reported as sentences for the model and as structured data."""
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
async def test_values_of_a_convertible_type_are_coerced_with_a_note(name: str, written: object, meant: object) -> None:
    result = await booked(**GOOD, **{name: written})
    data: Any = result.data
    assert (type(data[name]), data[name]) == (type(meant), meant)
    assert [(note.kind, note.path) for note in result.metadata.notes] == [("coerced", f"/{name}")]


async def test_a_tools_validator_runs_after_the_schema_and_sets_errors_notes_and_arguments() -> None:
    """Errors refuse the call, warnings become notes, and cleaned arguments replace the originals."""

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
        ran_with = verdicts(engine)[0]["arguments"]
    assert odd.failure_class == "invalid_parameters"
    assert "only even numbers; 2 would pass" in str(odd.error)
    assert "must be a member" in str(odd.error)
    assert "expected an integer" in str(wrong.error)
    assert even.data == ran_with == {**GOOD, "nights": 12}
    assert "Oslo is cheaper" in even.text
    assert [(note.kind, note.text) for note in even.metadata.notes] == [("warning", "Oslo is cheaper")]


def test_a_validation_result_has_four_fields_and_independent_empty_defaults() -> None:
    assert ValidationResult.__struct_fields__ == ("valid", "errors", "warnings", "cleaned_params")
    one, other = ValidationResult(valid=True), ValidationResult(valid=True)
    one.errors.append("changed")
    assert (other.errors, other.warnings, other.cleaned_params) == ([], [], {})


async def test_a_tool_without_its_own_validator_is_validated_by_its_schema() -> None:
    assert "validate_parameters" not in vars(Book)
    assert (await booked(city="Paris", guest="ann")).failure_class == "invalid_parameters"


async def test_a_refusal_names_dropped_keys_and_the_key_that_was_probably_meant() -> None:
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
        "- 'Text' is not an argument and was dropped. Did you mean 'text'?",
        "- 'mood' is not an argument and was dropped.",
    ]


async def test_unexpected_keys_are_dropped_before_every_attempt_with_a_note() -> None:
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


async def test_a_refused_call_returns_data_to_correct_it_in_the_next_step() -> None:
    async with Engine([Book()]) as engine:
        first = await said(engine, RawCall(name="book", arguments='{"city": "Paris", "guest": "ann"}', id="c1"))
        errors: Any = first.structured
        again = {"city": errors["errors"][0]["passes"], "guest": "ann"}
        second = await said(engine, call("book", id="c2", **again), Scope(iteration=1))
    assert (first.status, second.status) == ("error", "ok")
    assert "Correct these and call it again" in first.text


async def test_validate_parameters_returns_the_arguments_that_would_run() -> None:
    """A host with its own loop calls `found = tool.validate_parameters(params)`, then `execute(actor, **found.cleaned_params)`."""
    asked = {**GOOD, "nights": "5", "rate": "9.5", "breakfast": "true", "extras": '["tea"]'}
    found = Book().validate_parameters(asked)
    assert (found.valid, found.errors, len(found.warnings)) == (True, [], 4)
    assert found.cleaned_params == {**GOOD, "nights": 5, "rate": 9.5, "breakfast": True, "extras": ["tea"]}
    assert found.cleaned_params == (await booked(**asked)).data
    assert asked["nights"] == "5"


def test_validate_parameters_refuses_arguments_that_cannot_be_corrected() -> None:
    found = Book().validate_parameters({"city": "Paris", "nights": "many"})
    assert (found.valid, found.cleaned_params, len(found.errors)) == (False, {}, 3)


def test_validate_parameters_does_not_coerce_if_coerce_is_false() -> None:
    class Strict(Book):
        coerce = False

    assert not Strict().validate_parameters({**GOOD, "nights": "5"}).valid
    assert Strict().validate_parameters({**GOOD, "nights": 5}).cleaned_params == {**GOOD, "nights": 5}


def test_validate_parameters_of_a_function_coerces_drops_and_runs_its_validator() -> None:
    @tool(effect="none", validate=lambda params: None if params["n"] > 1 else "n: too small")
    def count(n: int) -> int:
        """Count."""
        return n

    found = count.validate_parameters({"n": "5.0", "colour": "red"})
    assert (found.valid, found.cleaned_params, len(found.warnings)) == (True, {"n": 5}, 2)
    assert count.validate_parameters({"n": "1"}).errors == ["n: too small"]


async def test_a_function_receives_the_uncoerced_value_if_coercion_is_off() -> None:
    """The rule also applies to a function with a validator, which runs after the engine's own checks."""

    @tool(effect="none", validate=lambda params: None)
    def count(n: float) -> str:
        """Count."""
        return type(n).__name__

    count.parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}
    async with Engine([count], coerce=False) as engine:
        assert (await said(engine, RawCall(name="count", arguments='{"n": 5.0}'))).text == "float"


class Named(Book):
    """Declares two of its schema's parameters as keywords."""

    async def execute(self, actor: str, city: str = "", guest: str = "") -> dict[str, Any]:  # type: ignore[override]
        return {"success": True, "data": [city, guest]}


@pytest.mark.parametrize("more", [{"nights": 2}, {"colour": "red"}, {"actor": "eve"}], ids=["declared", "unknown", "the actor"])
async def test_execute_of_a_tool_class_receives_only_the_keywords_it_declares(more: dict[str, Any]) -> None:
    (name,) = more
    async with Engine([Named()]) as engine:
        result = await said(engine, call("book", **GOOD, **more))
        (verdict,) = verdicts(engine)
    assert (result.status, result.data) == ("ok", ["Rome", "ann"])
    assert [(note.kind, note.path) for note in result.metadata.notes] == [("dropped", f"/{name}")]
    assert verdict["arguments"] == GOOD
    assert Named().validate_parameters({**GOOD, **more}).cleaned_params == GOOD


async def test_execute_that_accepts_any_keyword_receives_all_but_the_actor() -> None:
    assert (await booked(**GOOD, colour="red", actor="eve")).data == {**GOOD, "colour": "red"}


async def test_a_closed_schema_refuses_unknown_keys() -> None:
    class Closed(Named):
        parameters = {"type": "object", "properties": {"city": {}, "guest": {}}, "additionalProperties": False}

    async with Engine([Closed()]) as engine:
        result = await said(engine, call("book", **GOOD, colour="red"))
    assert (result.status, result.failure_class) == ("error", "invalid_parameters")


@pytest.mark.parametrize(
    ("arguments", "valid"), [({"p": "5"}, True), ({"p": 5, "q": "x"}, True), ({}, False), ({"q": "x"}, False), ({"p": "x"}, False)]
)
async def test_a_flat_map_of_parameters_is_read_as_an_object_schema(arguments: dict[str, Any], valid: bool) -> None:
    class Flat(Book):
        parameters = {"p": {"type": "integer", "required": True}, "q": {"type": "string"}}

    async with Engine([Flat()]) as engine:
        result = await said(engine, call("book", **arguments))
        (item,) = engine.tools.openai()
    assert result.success is valid
    assert Flat().validate_parameters(arguments).valid is valid
    assert item["function"]["parameters"] == {
        "type": "object",
        "properties": {"p": {"type": "integer"}, "q": {"type": "string"}},
        "required": ["p"],
    }
    if not valid and "p" not in arguments:
        assert "p: expected an integer, got nothing: it is missing" in result.text


async def test_a_missing_required_parameter_of_an_untyped_flat_map_is_named() -> None:
    class Bare(Book):
        parameters = {"p": {"required": True}}

    async with Engine([Bare()]) as engine:
        assert "p: expected" in (await said(engine, call("book"))).text
        assert (await said(engine, call("book", p=[1]))).data == {"p": [1]}


@pytest.mark.parametrize("flagged", [True, False])
async def test_a_parameter_may_be_named_like_a_json_schema_keyword(flagged: bool) -> None:
    """A flag such as `required: True` marks an entry as a parameter; without one, `properties` and `$defs` are schema keywords."""

    class Odd(Book):
        parameters = {"properties": {"required": True}} if flagged else {"properties": {"p": {"type": "integer"}}, "$defs": {}}

    async with Engine([Odd()]) as engine:
        (item,) = engine.tools.openai()
    assert list(item["function"]["parameters"]["properties"]) == (["properties"] if flagged else ["p"])


AMOUNTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "step": {"type": "integer", "multipleOf": 5},
        "either": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "integer", "multipleOf": 7}]},
        "days": {"enum": [7, 14]},
        "exact": {"const": 3},
    },
}


@pytest.mark.parametrize("effect", ["none", "once"])
@pytest.mark.parametrize(("name", "value", "number"), [("amount", -5, "1"), ("amount", 500, "100"), ("step", 7, "5"), ("either", -5, "1")])
async def test_a_tool_with_an_effect_suggests_no_number_that_the_model_did_not_write(
    effect: Effect, name: str, value: int, number: str
) -> None:
    """A model that reads that 1 would pass refunds 1."""

    @tool(effect=effect, parameters=AMOUNTS)
    async def refund(**arguments: Any) -> None:
        """Refund."""

    async with Engine([refund]) as engine:
        result = await said(engine, RawCall(name="refund", arguments={name: value}))
    data: Any = result.structured
    assert (f"{number} would pass" in str(result.error)) is (effect == "none")
    assert (data["errors"][0]["passes"] is None) is (effect == "once")


@pytest.mark.parametrize(("name", "value", "number"), [("days", 6, "7"), ("exact", 4, "3")])
async def test_a_tool_with_an_effect_suggests_numbers_that_its_schema_names(name: str, value: int, number: str) -> None:
    @tool(effect="once", parameters=AMOUNTS)
    async def refund(**arguments: Any) -> None:
        """Refund."""

    async with Engine([refund]) as engine:
        assert f"{number} would pass" in str((await said(engine, RawCall(name="refund", arguments={name: value}))).error)
