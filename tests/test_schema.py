"""JSON Schemas: what is refused at registration, how problems are described, and which mistakes are repaired."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate._schema import CompiledSchema, ValidationProblem, compile_schema
from callgate.errors import UsageError

Schema = dict[str, Any]
WHERE = "tool 'subject' (here.py:1)"


def schema_of(properties: Schema | None = None, **more: Any) -> CompiledSchema:
    return compile_schema({"type": "object", "properties": properties or {}, **more}, WHERE)


def refusal(source: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        compile_schema(source, WHERE)
    assert WHERE in str(caught.value)
    assert len(str(caught.value)) <= 1024
    return caught.value


def nested(levels: int, leaf: Any, key: str = "x") -> Any:
    for _ in range(levels):
        leaf = {key: leaf}
    return leaf


FAN = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 4} for n in range(14)}


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ({"type": "array"}, "schema_refused"),
        ({"type": ["object", "null"]}, "schema_refused"),
        ('{"type":"object","type":"object"}', "schema_refused"),
        ('{"type":"object"', "schema_refused"),
        ("[]", "schema_refused"),
        ("true", "schema_refused"),
        ({"properties": {"a": 5}}, "schema_refused"),
        ({"properties": {"a": {"type": "objekt"}}}, "schema_refused"),
        ({"properties": {"a": {"pattern": "("}}}, "schema_refused"),
        ({"properties": {"a": {"pattern": "(a|b)" * 60_000}}}, "schema_refused"),
        ({"properties": {"a": {"pattern": "((a{100}){100}){100}"}}}, "schema_refused"),
        ({"properties": nested(4000, {}, "items")}, "schema_refused"),
        ('{"properties":' + '{"items":' * 4000 + "{}" + "}" * 4001, "schema_refused"),
        ({"properties": {"a": {"enum": list(range(10_001))}}}, "schema_refused"),
        ({"$schema": "http://127.0.0.1:9/meta", "type": "object"}, "schema_refused"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "remote_ref"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "remote_ref"),
        ({"$id": "http://example.com/a", "properties": {"a": {"$ref": "b"}}}, "remote_ref"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "remote_ref"),
        ({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}, "schema_refused"),
        ({"properties": {"v": {"anyOf": [{"type": "string"}, {"$ref": "#/properties/v"}]}}}, "schema_refused"),
        ({"allOf": [{"$ref": "#"}]}, "schema_refused"),
        ({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**FAN, "d14": {"type": "string"}}}, "schema_refused"),
        ({"properties": {"a": {"type": "string", "x-mcp-header": "A\r\nB: 1"}}}, "schema_refused"),
        ({"properties": {"a": {"type": "string", "x-mcp-header": ""}}}, "schema_refused"),
        ({"properties": {"a": {"type": "number", "x-mcp-header": "Rate"}}}, "schema_refused"),
        (
            {"properties": {"a": {"type": "string", "x-mcp-header": "R"}, "b": {"type": "string", "x-mcp-header": "r"}}},
            "schema_refused",
        ),
    ],
)
def test_an_unsafe_or_invalid_schema_is_refused_at_registration(source: Any, code: str) -> None:
    """The refusal comes before any call and without a crash, and nothing is fetched or opened."""
    assert refusal(source).code == code


def test_a_cycle_in_a_schema_given_as_a_dict_is_refused() -> None:
    """A host that builds schemas in code may create a cycle."""
    source: Schema = {"type": "object", "properties": {}}
    source["properties"]["again"] = source
    assert refusal(source).code == "schema_refused"


@pytest.mark.parametrize(
    ("dialect", "schema", "good", "bad"),
    [
        ("http://json-schema.org/draft-04/schema#", {"maximum": 5, "exclusiveMaximum": True}, 4, 5),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMaximum": 5}, 4, 5),
        ("http://json-schema.org/draft-07/schema#", {"if": {"minimum": 3}, "then": {"maximum": 4}}, 4, 5),
        ("https://json-schema.org/draft/2019-09/schema", {"const": 4}, 4, 5),
        ("https://json-schema.org/draft/2020-12/schema", {"const": 4}, 4, 5),
    ],
)
def test_a_schema_is_interpreted_by_the_draft_it_names(dialect: str, schema: Schema, good: object, bad: object) -> None:
    """Drafts 4 to 2020-12 are supported; 2020-12 is the default."""
    made = schema_of({"a": schema}, **{"$schema": dialect})
    assert made.is_valid({"a": good})
    assert not made.is_valid({"a": bad})


def test_references_within_a_schema_are_resolved() -> None:
    """References may be pointers, escaped pointers, anchors, embedded `$id`s or the metaschema."""
    made = schema_of(
        {
            "a": {"$ref": "#/$defs/a~1b%25"},
            "b": {"$ref": "#anchor"},
            "c": {"$ref": "http://example.com/in"},
            "d": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        },
        **{"$defs": {"a/b%": {"type": "integer"}, "x": {"$anchor": "anchor", "const": 1}, "y": {"$id": "http://example.com/in"}}},
    )
    assert made.is_valid({"a": 1, "b": 1, "c": "any", "d": {"type": "object"}})
    assert not made.is_valid({"a": "1"})
    assert not made.is_valid({"b": 2})


TWICE = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/n"}},
    "$defs": {
        "n": {"anyOf": [{"properties": {"x": {"$ref": "#/$defs/n"}}, "required": [name]} for name in "ab"] + [{"type": "null"}]},
    },
}


def test_exponential_recursion_in_a_schema_is_bounded() -> None:
    """The 2^60 checks are counted before they are made, and the value is refused with the reason."""
    made = compile_schema(TWICE, WHERE)
    assert made.is_valid(nested(2, None)) is False
    assert made.is_valid({"x": nested(3, None) | {"a": 1}}) is False
    assert made.is_valid({"x": None})
    assert made.is_valid(nested(60, 5)) is False
    assert [problem.keyword for problem in made.problems(nested(60, 5))] == ["budget"]


def test_linear_recursion_in_a_schema_is_allowed() -> None:
    """Trees and JSON values may have any valid depth."""
    tree = compile_schema(
        {
            "type": "object",
            "properties": {"v": {"$ref": "#/$defs/n"}},
            "$defs": {"n": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}]}},
        },
        WHERE,
    )
    assert tree.is_valid({"v": nested(60, None, "next")})
    assert tree.problems({"v": nested(60, 5, "next")})


@pytest.mark.parametrize("pattern", [r"^(a|aa)+$", r"^(\w+\s?)*$!", r"\s+$", r"(a|b)*a(a|b){300}c", r"(?=.*y)x", r"^(a+)+\1y$"])
@pytest.mark.parametrize("text", [" " * 200_000 + "x", "ab" * 100_000, "a" * 200_000 + "!"], ids=["spaces", "ab", "a"])
def test_a_costly_pattern_is_bounded_and_rejects_the_value(pattern: str, text: str) -> None:
    """Matching is linear if possible, otherwise limited to a number of steps, otherwise not begun. If it is undecided, the value is
    refused.
    """
    made = schema_of({"s": {"type": "string", "pattern": pattern}, "other": {"type": "string"}})
    assert not made.is_valid({"s": text})
    assert {problem.keyword for problem in made.problems({"s": text})} <= {"pattern", "backtracking", "budget"}
    assert made.is_valid({"other": text})


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^[A-Z]{3}-\d{4}$", "ABC-1234", "ABC-1234\n"),
        (r"^\d+$", "12", "\u0661\u0662"),
        (r"b", "abc", "xyz"),
        (r"^(?!x)\w+$", "ab", "xb"),
        (r"^\p{L}+$", "é", "1"),
    ],
)
def test_patterns_follow_ecma_262(pattern: str, good: str, bad: str) -> None:
    """Patterns are unanchored, digits are ASCII, `$` matches only at the very end, and look-around and Unicode classes work."""
    made = schema_of({"s": {"pattern": pattern}})
    assert made.is_valid({"s": good})
    assert not made.is_valid({"s": bad})


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"properties": {"a": {"type": "string", "required": True}, "b": {"required": False}}}, {"required": ["a"]}),
        ({"properties": {"a": {"required": True}, "b": {}}, "required": ["b"]}, {"required": ["b", "a"]}),
        ({"properties": {"a": {"maximum": "50"}}}, {"properties": {"a": {"maximum": 50}}}),
        ({"properties": {}, "additionalProperties": "false"}, {"additionalProperties": False}),
        ({"properties": {"a": {"maximum": 5, "exclusiveMaximum": True}}}, {"properties": {"a": {"exclusiveMaximum": 5}}}),
    ],
    ids=["flags", "flag and list", "number as text", "boolean as text", "draft 4 bound"],
)
def test_an_unambiguous_schema_mistake_is_repaired_with_a_note(given: Schema, shown: Schema) -> None:
    """Requirement C44, and other mistakes in real catalogues. The given source is unchanged, and the schema that models see is valid."""
    before = json.dumps(given)
    made = compile_schema(given, WHERE)
    assert shown.items() <= made.source.items()
    assert made.notes
    assert json.dumps(given) == before
    assert compile_schema(made.source, WHERE).notes == ()


def test_top_level_properties_are_found_in_all_branches() -> None:
    """An argument that only a branch or `required` names is a known one."""
    made = schema_of({"a": True}, allOf=[{"properties": {"b": {}}}, {"$ref": "#/$defs/c"}], **{"$defs": {"c": {"required": ["c"]}}})
    assert made.properties == {"a", "b", "c"}
    assert made.silent
    assert not made.closed
    assert schema_of(additionalProperties=False).closed
    assert not schema_of(additionalProperties={"type": "string"}).silent


FULL: Schema = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "mode": {"enum": ["fast", "slow"]},
    "code": {"type": "string", "pattern": "^[A-Z]+$"},
    "ratio": {"type": "number", "exclusiveMinimum": 0},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2, "uniqueItems": True},
    "kind": {"const": "file"},
    "step": {"type": "integer", "multipleOf": 5},
    "when": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "below": {"exclusiveMaximum": 10, "type": "integer"},
}


@pytest.mark.parametrize(
    ("value", "message", "passes"),
    [
        ({"limit": 5000}, "limit: expected an integer of at most 100, got 5000; 100 would pass", 100),
        ({"limit": 0}, "limit: expected an integer of at least 1, got 0; 1 would pass", 1),
        ({"limit": "x"}, 'limit: expected an integer, got "x"', None),
        ({"limit": True}, "limit: expected an integer, got true", None),
        ({"mode": "Fast"}, 'mode: expected one of "fast", "slow", got "Fast"; "fast" would pass', "fast"),
        ({"code": "a"}, "code: expected text that matches '^[A-Z]+$', got \"a\"", None),
        ({"ratio": 0}, "ratio: expected a number of more than 0, got 0", None),
        ({"below": 10}, "below: expected an integer of less than 10, got 10; 9 would pass", 9),
        ({"tags": ["a", "b", "c"]}, "tags: expected a list of at most 2 items, got 3 items", None),
        ({"tags": ["abcd"]}, "tags[0]: expected text of at most 3 characters, got 4 characters", None),
        ({"tags": ["a", "a"]}, "tags: expected a list without repeated items, got a list of 2; a list of 1 would pass", ["a"]),
        ({"kind": "dir"}, 'kind: expected "file", got "dir"; "file" would pass', "file"),
        ({"step": 7}, "step: expected a multiple of 5, got 7; 5 would pass", 5),
        ({"when": "soon"}, 'when: expected an integer, or null, got "soon"', None),
        ({"limt": 5}, "limt: this key is unknown here; did you mean 'limit'?", None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_problem_states_path_expectation_value_and_a_passing_value(value: Schema, message: str, passes: object) -> None:
    """Requirements C45 to C49: the model must be able to correct the value."""
    (problem,) = schema_of(FULL, additionalProperties=False).problems(value)
    assert problem.message == message
    assert problem.passes == passes
    assert problem.path.startswith("/")


def test_all_problems_are_reported_at_once() -> None:
    """Requirements C13 and C14."""
    problems = schema_of(FULL, required=["limit", "mode"]).problems({"code": "a", "tags": 5, "step": 1})
    assert sorted(problem.path for problem in problems) == ["/code", "/limit", "/mode", "/step", "/tags"]
    assert next(problem.passes for problem in problems if problem.path == "/mode") == "fast"


CONDITIONAL: Schema = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "path": {"type": "string"}, "url": {"type": "string"}, "user": {}, "password": {}},
    "if": {"properties": {"kind": {"const": "file"}}, "required": ["kind"]},
    "then": {"required": ["path"]},
    "dependentRequired": {"user": ["password"]},
    "not": {"required": ["path", "url"]},
}


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ({"kind": "file"}, "/path", "call for"),
        ({"user": "u"}, "/password", "call for"),
        ({"path": "a", "url": "b"}, "", "not path and url together"),
    ],
)
def test_conditional_and_exclusive_parameters_are_explained(value: Schema, path: str, words: str) -> None:
    """Requirements C51 and C52."""
    (problem,) = compile_schema(CONDITIONAL, WHERE).problems(value)
    assert problem.path == path
    assert words in problem.message


def test_one_of_is_explained_when_none_and_when_several_match() -> None:
    """Requirement C52: no alternative matches, or more than one."""
    made = schema_of({"a": {}, "b": {}}, oneOf=[{"required": ["a"]}, {"required": ["b"]}])
    assert "one of these: a, b" in made.problems({})[0].message
    assert "only one of: a, b" in made.problems({"a": 1, "b": 2})[0].message
    assert made.is_valid({"a": 1})


def test_problems_are_bounded_in_number_and_size() -> None:
    """There are at most twenty problems, each with a bounded text that does not repeat a large value."""
    made = schema_of(FULL, additionalProperties=False)
    for value in ({f"k{n}" * 300: n for n in range(500)}, {"mode": "x" * 100_000}, {"limit": 10**30}, {"kind": [[["x" * 9999]] * 99] * 99}):
        problems = made.problems(value)
        assert 0 < len(problems) <= 20
        assert sum(len(problem.message) for problem in problems) < 16_000


def test_a_validation_problem_has_no_passing_value_by_default() -> None:
    """`passes` is part of a result's details."""
    assert ValidationProblem(path="/a", message="m").passes is None


def test_schema_libraries_are_not_loaded_at_import() -> None:
    """Importing callgate stays fast."""
    code = "import sys, callgate._schema, callgate._json, callgate._pipeline.validate; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"jsonschema_rs", "docstring_parser", "pydantic", "json_repair"} & set(loaded)


KEYWORDS = [
    "type",
    "properties",
    "required",
    "enum",
    "anyOf",
    "oneOf",
    "not",
    "items",
    "pattern",
    "$ref",
    "$defs",
    "$id",
    "maximum",
    "additionalProperties",
]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["5", "true", "null", "[1]", '{"a":"1"}', "x", "[", "5.0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)
soup = st.recursive(
    st.sampled_from(["object", "integer", "#", "#/$defs/a", "(", "a+", 5, True, None, "true", "9"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYWORDS), soup, max_size=4), st.dictionaries(st.sampled_from("ab"), anything, max_size=2))
def test_an_arbitrary_schema_is_refused_or_explains_every_invalid_value(source: Schema, value: Schema) -> None:
    """An untrusted schema raises nothing but the refusal. If it compiles, every value that it refuses gets an explanation."""
    try:
        made = compile_schema(source, WHERE)
    except UsageError:
        return
    assert bool(made.problems(value)) is not made.is_valid(value)
