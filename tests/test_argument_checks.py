"""The engine's checks as functions: they give the answers of the engine, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callgate import Engine, Limits, RawCall, UsageError, tool
from callgate.argument_checks import check_arguments, matching_name, parse_arguments, repair_json, resolve_name
from callgate.errors import ArgumentsInvalid, ArgumentsMalformed, ArgumentsTruncated
from tests.engine_calls import said

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "amount": {"type": "integer", "minimum": 1}},
    "required": ["order", "amount"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": [1]}', {"a": [1]}), (b'{"a": 1}', {"a": 1}), ("", {}), ("null", {}), ({"a": 1}, {"a": 1})]
)
def test_arguments_are_parsed_to_one_object(text: Any, value: object) -> None:
    assert parse_arguments(text) == value


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ('{"a": 1,}', "invalid_json", "not valid JSON"),
        ("[1]", "not_object", "a list, not an object"),
        ('{"a": 1, "a": 2}', "duplicate_key", "'a' stands twice"),
        ('{"a": 1e999}', "bad_number", "number"),
        ('{"a": [', "truncated", "cut off"),
        ('{"a": "' + "x" * 50 + '"}', "too_large", "30 is the limit"),
    ],
)
def test_refused_text_says_what_is_wrong_and_what_to_send(text: str, code: str, told: str) -> None:
    with pytest.raises((ArgumentsMalformed, ArgumentsTruncated), match=told) as refusal:
        parse_arguments(text, limits=Limits(arguments_bytes=30))
    assert refusal.value.code == code
    assert "Send" in str(refusal.value)


def test_malformed_json_with_one_meaning_is_repaired_with_a_note() -> None:
    found = repair_json("{'order': 'A7', amount: 5,}")
    assert found.value == {"order": "A7", "amount": 5}
    assert [note.kind for note in found.notes] == ["json_repaired"]
    assert repair_json('{"a": 1}').notes == ()


def test_a_repaired_object_is_converted_to_its_schema_or_refused() -> None:
    found = repair_json("{order: 'A7', amount: '5'}", SCHEMA)
    assert found.value == {"order": "A7", "amount": 5}
    assert [note.kind for note in found.notes] == ["json_repaired", "coerced"]
    with pytest.raises(ArgumentsInvalid, match="amount"):
        repair_json("{order: 'A7', amount: 'many'}", SCHEMA)


@pytest.mark.parametrize("text", ["", "{'a': ", '{"a": 1} {"b": ', "Sure, here it is!", "{'a': 1, 'a': 2}"])
def test_text_that_was_cut_off_or_has_several_meanings_is_refused(text: str) -> None:
    with pytest.raises((ArgumentsMalformed, ArgumentsTruncated)):
        repair_json(text)


def test_a_name_means_a_known_one_or_comes_with_suggestions() -> None:
    known = ["read_file", "write_file", "Search", "search"]
    exact, almost, unknown = (resolve_name(name, known) for name in ("read_file", "functions.Read-File", "raed_file"))
    assert (exact.name, exact.notes) == ("read_file", ())
    assert (almost.name, [note.kind for note in almost.notes]) == ("read_file", ["name"])
    assert (unknown.name, unknown.suggestions[0]) == (None, "read_file")
    assert resolve_name("SEARCH", known).name is None, "it may mean two"
    assert matching_name(" search ", known) == "search"


def test_arguments_are_checked_against_a_schema_with_all_errors_at_once() -> None:
    given = {"order": 7, "amount": 0, "note": ""}
    found = check_arguments(SCHEMA, given)
    assert not found.valid
    assert {error.path for error in found.errors} >= {"/amount"}
    assert len(found.errors) >= 2
    assert all(error.message and error.expected for error in found.errors)
    assert given == {"order": 7, "amount": 0, "note": ""}


def test_valid_arguments_are_converted_without_loss_and_only_if_wanted() -> None:
    found = check_arguments(SCHEMA, '{"order": "A7", "amount": "5"}')
    assert (found.valid, found.arguments, [note.path for note in found.notes]) == (True, {"order": "A7", "amount": 5}, ["/amount"])
    assert not check_arguments(SCHEMA, {"order": "A7", "amount": "5"}, coerce=False).valid


def test_a_schema_that_cannot_be_used_is_the_developers_error() -> None:
    with pytest.raises(UsageError, match="schema"):
        check_arguments({"type": "object", "properties": {"a": {"type": "sting"}}}, {})


MISTAKES: dict[str, tuple[Callable[[Any], object], str]] = {
    "text to repair": (lambda wrong: repair_json(wrong), "repair_json(text=None): it must be text."),
    "text to parse": (lambda wrong: parse_arguments(wrong), "parse_arguments(text=None): it must be text, bytes or a dict."),
    "arguments to check": (
        lambda wrong: check_arguments(SCHEMA, wrong),
        "check_arguments(arguments=None): it must be text, bytes or a dict.",
    ),
    "name": (lambda wrong: resolve_name(wrong, ["a"]), "resolve_name(name=None): it must be text."),
    "name to match": (lambda wrong: matching_name(wrong, ["a"]), "matching_name(name=None): it must be text."),
    "known names": (lambda wrong: resolve_name("a", wrong), "resolve_name(known=None): it must be a list of names."),
    "a known name": (lambda wrong: resolve_name("a", [wrong]), "resolve_name(known=[None]): it must be a list of names."),
    "one text as known names": (lambda _: resolve_name("a", "abc"), "resolve_name(known='abc'): it must be a list of names."),
    "schema": (lambda wrong: check_arguments(wrong, {}), "The schema of the arguments cannot be used: it is not JSON."),
    "schema of a value": (lambda _: repair_json("{}", 3), "The schema of the value cannot be used: it is not JSON."),  # type: ignore[arg-type]
    "limits": (lambda _: repair_json("{}", limits=3), "repair_json(limits=3): it must be a Limits or None."),  # type: ignore[arg-type]
    "keyword": (lambda _: check_arguments(SCHEMA, {}, coerc=False), "check_arguments has no option 'coerc'; did you mean 'coerce'?"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize(("use", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_of_the_developer_is_a_usage_error(use: Callable[[Any], object], told: str) -> None:
    """None is what a variable has that the host forgot to set; no model's text is None."""
    with pytest.raises(UsageError) as error:
        use(None)
    assert str(error.value).startswith(told)


async def test_an_engine_gives_the_same_answers() -> None:
    @tool(parameters=SCHEMA, effect="none")
    def refund(order: str, amount: int) -> str:
        """Refund an order."""
        return f"{amount} for {order}"

    text = "{order: 'A7', amount: 0}"
    async with Engine([refund], repair=True) as engine:
        refused = await said(engine, RawCall(name="Refund", arguments=text))
        ran = await said(engine, RawCall(name="Refund", arguments=text.replace("0", "'5'")))
    problems = check_arguments(SCHEMA, {"order": "A7", "amount": 0}).errors
    assert all(problem.message in refused.text for problem in problems)
    notes = [*repair_json(text.replace("0", "'5'"), SCHEMA).notes, *resolve_name("Refund", ["refund"]).notes]
    assert {note.text for note in notes} == {note.text for note in ran.metadata.notes}
