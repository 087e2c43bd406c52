"""Coercion: text that a model writes for another type is converted if the schema allows only one reading, and is otherwise unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate._schema import CompiledSchema, coerce_values, compile_schema, whole_numbers

Schema = dict[str, Any]


def schema_of(properties: Schema, **more: Any) -> CompiledSchema:
    return compile_schema({"type": "object", "properties": properties, **more}, "the schema")


def coerce(properties: Schema, value: Schema, **more: Any) -> tuple[Schema, list[str]]:
    made = schema_of(properties, **more)
    changed, notes = coerce_values(value, made)
    return changed, [note.path for note in notes]


@pytest.mark.parametrize(
    ("schema", "written", "meant"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, "-12", -12),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "1e-07", 1e-07),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "null"}, "null", None),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": "array"}, "[1,2]", [1, 2]),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
        ({"anyOf": [{"type": "integer"}, {"enum": ["auto"]}]}, "7", 7),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": True}, "true", True),
        ({"$ref": "#/$defs/n"}, "3", 3),
    ],
    ids=str,
)
def test_text_is_converted_to_the_type_that_the_schema_requires(schema: Schema, written: str, meant: object) -> None:
    """Requirement C46: only conversions that the schema determines are made."""
    changed, paths = coerce({"a": schema}, {"a": written}, **{"$defs": {"n": {"type": "integer"}}})
    assert changed == {"a": meant}
    assert type(changed["a"]) is type(meant)
    assert paths == ["/a"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, "007"),
        ({"type": "integer"}, " 5"),
        ({"type": "integer"}, "1_000"),
        ({"type": "integer"}, "\u0665"),
        ({"type": "integer"}, "99999999999999999999"),
        ({"type": "integer"}, True),
        ({"type": "number"}, "0.10000000000000000000001"),
        ({"type": "number"}, "1e999"),
        ({"type": "number"}, "NaN"),
        ({"type": "boolean"}, "yes"),
        ({"type": "boolean"}, 1),
        ({"type": "null"}, "None"),
        ({"type": "null"}, ""),
        ({"type": "array"}, "a,b"),
        ({"type": "array"}, "['a']"),
        ({"type": "array"}, '[{"a":1,"a":2}]'),
        ({"type": "array"}, "[1"),
        ({"type": "array"}, 5),
        ({"type": "object"}, "[1]"),
        ({"type": "string"}, 5),
        ({"type": ["string", "integer"], "minLength": 3}, "5"),
        ({"anyOf": [{"type": "string", "minLength": 3}, {"type": "integer"}]}, "5"),
    ],
    ids=str,
)
def test_ambiguous_or_lossy_conversions_are_not_made(schema: Schema, value: object) -> None:
    """No bool becomes a number, no precision is lost, no list is guessed from text, and text stays text where the schema allows it."""
    changed, paths = coerce({"a": schema}, {"a": value})
    assert changed == {"a": value}
    assert paths == []


def test_coercion_converts_nested_values_and_does_not_change_its_input() -> None:
    """Items of arrays, objects written as text, and the members of those objects are converted."""
    schema: Schema = {"rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    value = {"rows": [{"n": "1"}, {"n": 2}, '{"n": "3"}']}
    before = json.dumps(value)
    changed, paths = coerce(schema, value)
    assert changed == {"rows": [{"n": 1}, {"n": 2}, {"n": 3}]}
    assert paths == ["/rows/0/n", "/rows/2", "/rows/2/n"]
    assert json.dumps(value) == before


KINDS: Schema = {
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "z": {"type": ["null", "boolean"]},
    "l": {"type": "array", "items": {"type": ["integer", "boolean"]}},
    "s": {"type": "string"},
}
valid = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**63), 2**64 - 1),
        "n": st.floats(allow_nan=False, allow_infinity=False),
        "b": st.booleans(),
        "z": st.none() | st.booleans(),
        "l": st.lists(st.integers(-9, 9) | st.booleans(), max_size=3),
        "s": st.text(),
    },
)


@given(valid, st.sets(st.sampled_from(sorted(KINDS))))
def test_coercion_is_lossless(value: Schema, mistaken: set[str]) -> None:
    """Values written as JSON text are restored exactly, and correct values stay unchanged."""
    written = {key: json.dumps(item) if key in mistaken and key != "s" else item for key, item in value.items()}
    changed, _ = coerce(KINDS, written)
    assert changed == value
    assert [type(changed[key]) for key in value if key != "n"] == [type(value[key]) for key in value if key != "n"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["5", "true", "null", "[1]", '{"a":"1"}', "x", "[", "5.0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(KINDS)), anything, max_size=4))
def test_coercion_is_idempotent(value: Schema) -> None:
    """This also holds for values that stay invalid."""
    once, _ = coerce(KINDS, value)
    assert coerce(KINDS, once) == (once, [])


def test_integral_floats_become_integers_only_where_the_schema_requires_integers() -> None:
    """JSON Schema accepts 5.0 as an integer, but a tool needs an `int`."""
    made = schema_of({"limit": {"type": "integer"}, "ratio": {"type": "number"}, "when": {"type": ["integer", "null"]}})
    changed, notes, _ = whole_numbers({"limit": 5.0, "ratio": 5.0, "when": None}, made)
    assert changed == {"limit": 5, "ratio": 5.0, "when": None}
    assert type(changed["limit"]) is int
    assert type(changed["ratio"]) is float
    assert [note.path for note in notes] == ["/limit"]
