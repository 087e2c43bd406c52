"""Validation of calls: unknown keys, coercion, the tool's own validator, and errors that say what to change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate._pipeline.validate import revalidate, validate
from callgate._schema import whole_numbers
from callgate.calls import RawCall, Scope
from callgate.errors import ArgumentsInvalid, ArgumentsMalformed, ToolRaised
from callgate.stage_types import ParsedCall, ResolvedCall, ValidatedCall
from callgate.tools import BoundTool, Tool, ToolRegistry, ValidationResult, tool
from tests.canonical_json import canonical

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "maximum": 100}, "text": {"type": "string"}, "exact": {"type": "boolean"}},
    "required": ["text"],
}


class Search(Tool):
    name = "search"
    description = "Searches."
    category = "safe_chain"

    def __init__(self, schema: dict[str, Any] = SCHEMA, coerce: bool | None = None) -> None:
        self.parameters = schema
        self.coerce = coerce


class Answering(Search):
    """A tool whose validator clears its arguments, then returns or raises a given answer."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def validate_parameters(self, params: dict[str, Any]) -> ValidationResult:
        params.clear()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def bound(subject: Tool) -> BoundTool:
    return ToolRegistry().register(subject)


def validated(subject: Tool, arguments: dict[str, Any], *, coerce: bool = True) -> ValidatedCall:
    parsed = ParsedCall(uid="u", raw=RawCall(name="search", arguments=arguments), arguments=arguments)
    return validate(ResolvedCall(parsed=parsed, tool=bound(subject)), Scope(run="r"), coerce=coerce)


def refused(subject: Tool, arguments: dict[str, Any], *, coerce: bool = True) -> ArgumentsInvalid:
    with pytest.raises(ArgumentsInvalid) as caught:
        validated(subject, arguments, coerce=coerce)
    assert canonical(caught.value.details)
    assert len(str(caught.value).encode()) <= 4096
    return caught.value


def kinds(call: ValidatedCall) -> list[str]:
    return [note.kind for note in call.notes]


def test_valid_arguments_pass_unchanged_without_a_note() -> None:
    """Requirements C12 and D7."""
    call = validated(Search(), {"text": "a", "limit": 5})
    assert call.arguments == {"text": "a", "limit": 5}
    assert call.notes == ()
    assert call.scope.run == "r"


def test_all_problems_are_reported_at_once_as_text_and_data() -> None:
    """Requirements C13 and D8: the model can correct the call in one step."""
    error = refused(Search(), {"limit": 5000, "exact": "maybe"})
    assert error.code == "schema_invalid"
    assert error.failure_class == "invalid_parameters"
    assert "limit: expected an integer of at most 100, got 5000; 100 would pass" in str(error)
    assert error.details is not None
    errors: Any = error.details["errors"]
    assert {item["path"] for item in errors} == {"/limit", "/exact", "/text"}
    assert next(item for item in errors if item["path"] == "/limit") == {
        "path": "/limit",
        "expected": "an integer of at most 100",
        "got": "5000",
        "passes": 100,
    }


def test_coercion_is_noted_and_remaining_errors_describe_the_coerced_value() -> None:
    """Requirement C46."""
    call = validated(Search(), {"text": "a", "limit": "5", "exact": "True"})
    assert call.arguments == {"text": "a", "limit": 5, "exact": True}
    assert kinds(call) == ["coerced", "coerced"]
    assert "got 5000" in str(refused(Search(), {"text": "a", "limit": "5000"}))


@pytest.mark.parametrize(("engine", "own", "taken"), [(True, None, True), (False, None, False), (True, False, False), (False, True, True)])
def test_the_coerce_setting_of_a_tool_overrides_that_of_the_engine(engine: bool, own: bool | None, taken: bool) -> None:
    """Coercion can be turned off per tool or per engine."""
    subject = Search(coerce=own)
    if taken:
        assert validated(subject, {"text": "a", "limit": "5"}, coerce=engine).arguments["limit"] == 5
    else:
        refused(subject, {"text": "a", "limit": "5"}, coerce=engine)


def test_an_integral_float_becomes_an_integer_where_the_schema_wants_one() -> None:
    """A float is valid by the schema, but a tool may need an `int`."""
    call = validated(Search(), {"text": "a", "limit": 5.0})
    assert type(call.arguments["limit"]) is int
    assert kinds(call) == ["coerced"]
    assert type(validated(Search(), {"text": "a", "limit": 5.0}, coerce=False).arguments["limit"]) is float


@tool(name="search", description="Searches.")
def search(text: str, limit: int = 5) -> str:
    return text * limit


def test_a_function_tool_drops_unknown_keys_with_a_note() -> None:
    """Requirement C23: keys are dropped only if the schema says nothing about them."""
    call = validated(search, {"text": "a", "colour": "red", "limit": 1})
    assert call.arguments == {"text": "a", "limit": 1}
    assert [(note.kind, note.path) for note in call.notes] == [("dropped", "/colour")]


def test_a_schema_tool_receives_unknown_keys() -> None:
    """The tool may take more than its schema declares."""
    assert validated(Search(), {"text": "a", "colour": "red"}).arguments["colour"] == "red"


def test_a_closed_schema_refuses_unknown_keys_for_every_tool() -> None:
    """`additionalProperties: false` is an explicit statement about unknown keys."""
    closed = {**SCHEMA, "additionalProperties": False}
    assert "did you mean 'limit'?" in str(refused(Search(closed), {"text": "a", "limt": 1}))
    decorated = tool(name="search", description="d", parameters=closed)(lambda **arguments: arguments)
    refused(decorated, {"text": "a", "colour": 1})


def test_a_function_tool_with_an_open_schema_keeps_unknown_keys() -> None:
    """`additionalProperties: {...}` is an explicit statement about unknown keys."""
    opened = {**SCHEMA, "additionalProperties": {"type": "integer"}}
    decorated = tool(name="search", description="d", parameters=opened)(lambda **arguments: arguments)
    assert validated(decorated, {"text": "a", "more": 1}).arguments["more"] == 1
    refused(decorated, {"text": "a", "more": "x"})


def test_errors_of_a_tools_validator_refuse_the_call() -> None:
    """Requirements C43 and C50."""
    error = refused(Answering(ValidationResult(valid=False, errors=["text: must name a city; 'Rome' would pass"])), {"text": "a"})
    assert "must name a city" in str(error)


def test_a_validator_result_with_errors_or_valid_false_refuses_the_call() -> None:
    """Either of them is enough."""
    refused(Answering(ValidationResult(valid=True, errors=["no"])), {"text": "a"})
    refused(Answering(ValidationResult(valid=False)), {"text": "a"})


def test_validator_warnings_are_noted_and_its_cleaned_arguments_are_used() -> None:
    """Requirement C43: the tool runs with the cleaned arguments."""
    call = validated(Answering(ValidationResult(valid=True, warnings=["trimmed"], cleaned_params={"text": "b"})), {"text": " b "})
    assert call.arguments == {"text": "b"}
    assert [(note.kind, note.text) for note in call.notes] == [("warning", "trimmed")]


def test_a_validator_cannot_change_the_arguments_in_place() -> None:
    """The validator gets a copy."""
    assert validated(Answering(ValidationResult(valid=True)), {"text": "a"}).arguments == {"text": "a"}


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("broken"),
        None,
        True,
        ValidationResult(valid=True, cleaned_params={"text": 5}),
        ValidationResult(valid=True, cleaned_params={"text": object()}),
    ],
    ids=["raises", "nothing", "a boolean", "breaks the schema", "no JSON"],
)
def test_a_broken_validator_fails_the_call(answer: Any) -> None:
    """The error is for the tool's author."""
    with pytest.raises(ToolRaised) as caught:
        validated(Answering(answer), {"text": "a"})
    assert caught.value.code == "validator_failed"


def test_the_schema_is_checked_before_the_validator_of_the_tool() -> None:
    """A validator never gets arguments of the wrong type."""
    refused(Answering(RuntimeError("must not be asked")), {"text": 5})


def test_a_validate_function_of_the_decorator_can_refuse_arguments() -> None:
    """Requirement C50 for function tools."""
    picky = tool(name="search", description="d", validate=lambda params: "no digits" if params["text"].isdigit() else None)(
        lambda text: text
    )
    assert validated(picky, {"text": "a"}).notes == ()
    assert "no digits" in str(refused(picky, {"text": "1"}))


whole = st.integers(-(2**60), 2**60).map(float) | st.floats(allow_nan=False, allow_infinity=False).map(float.__trunc__).map(
    lambda number: float(number) if -(2**63) <= number < 2**63 else 0.0
)
numbers = whole | st.integers(-(2**60), 2**60)
COUNTS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "number"},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"count": {"type": "integer"}}}},
    },
    "additionalProperties": {"type": "integer"},
}
ONE_COUNT: dict[str, Any] = {
    "type": "object",
    "properties": {"count": {"type": ["integer", "null"], "minimum": -(2**62)}, "number": {"type": "number"}},
}


@given(
    st.sampled_from([COUNTS, ONE_COUNT, {**COUNTS, "additionalProperties": True}]),
    st.fixed_dictionaries(
        {}, optional={"text": st.text(), "number": numbers, "count": numbers, "rows": st.lists(st.fixed_dictionaries({"count": numbers}))}
    ),
)
def test_fast_integer_conversion_matches_a_schema_check_of_every_float(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """The fast check gives the same result as validating every float with the schema."""
    expected, notes, problems = whole_numbers(arguments, bound(Search(schema)).schema)
    assert problems == []
    call = validated(Search(schema), arguments)
    assert canonical(call.arguments) == canonical(expected)
    assert call.notes == notes


def test_changed_arguments_are_revalidated_and_never_coerced() -> None:
    """Arguments that a hook or a human changed are validated again, and the earlier notes stay."""
    call = validated(Search(), {"text": "a", "limit": "5"})
    given = {"text": "b", "limit": 6}
    again = revalidate(call, given)
    given["text"] = "changed later"
    assert again.arguments == {"text": "b", "limit": 6}
    assert kinds(again) == ["coerced"]
    with pytest.raises(ArgumentsInvalid):
        revalidate(call, {"text": "b", "limit": "6"})
    with pytest.raises(ArgumentsMalformed):
        revalidate(call, {"text": object()})


def test_a_pattern_that_exceeds_its_budget_is_refused_as_regex_budget() -> None:
    """The value is not reported as wrong, because the model should send less of it and not something else."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "pattern": r"^(a+)+\1y$"}}}
    assert refused(Search(schema), {"text": "a" * 3_000}).code == "regex_budget"
    assert refused(Search(schema), {"text": "a" * 500_000}).code == "regex_budget"


def test_a_large_invalid_value_gives_a_bounded_error() -> None:
    """The error has at most 4 KiB and repeats no large value."""
    refused(Search(), {"text": ["x" * 1000] * 900})
    refused(Search({**SCHEMA, "additionalProperties": False}), {"text": "a", **{f"k{n}" * 100: n for n in range(300)}})
