"""Real schemas, arguments, malformed texts and tool names in the stages that check them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from callgate._json import ends_inside
from callgate._schema import compile_schema
from tests.corpus.adapter import check_args, is_valid, repair, resolve
from tests.corpus.input_files import rows, same


@pytest.mark.parametrize("row", rows("json_schema/suite.jsonl"))
def test_schemas_validate_as_the_json_schema_test_suite_expects(row: dict[str, Any]) -> None:
    """Drafts 4 to 2020-12."""
    assert is_valid(row["schema"], row["data"], row["draft"], {}) is row["valid"]


@pytest.mark.parametrize("row", rows("json/malformed.jsonl"))
def test_malformed_json_is_repaired_correctly_or_refused(row: dict[str, Any]) -> None:
    """Truncated text is not repaired, and nothing is guessed: where two repair libraries differ, the result is correct or a refusal."""
    got = repair(row["text"], row.get("schema"))
    if ends_inside(row["text"]) and got["ok"]:
        assert row["text"].rstrip().endswith(("}", "]"))
    if row["kind"] == "refuse":
        assert not got["ok"]
    elif got["ok"]:
        assert same(got["value"], row["expected"])
    else:
        assert not row.get("agreed") or ends_inside(row["text"])


def bfcl_calls() -> list[Any]:
    return rows("bfcl/calls.jsonl")


@pytest.mark.parametrize("row", bfcl_calls())
def test_recorded_arguments_are_valid_or_invalid_as_recorded(row: dict[str, Any]) -> None:
    """Valid arguments pass unchanged, invalid ones are refused; without the first required argument, valid ones are refused too."""
    schemas = {tool["name"]: tool["schema"] for tool in row["tools"]}
    for call, valid in zip(row["calls"], row["valid"], strict=True):
        if call["name"] not in schemas or valid is None:
            continue
        schema, arguments = schemas[call["name"]], call["arguments"]
        got = check_args(schema, copy.deepcopy(arguments), False)
        assert got["ok"] is valid
        assert not valid or same(got["arguments"], arguments)
        required = schema.get("required") or []
        if valid and required and required[0] in arguments:
            assert not check_args(schema, {k: v for k, v in arguments.items() if k != required[0]}, True)["ok"]


def written_as_text(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with every top-level number, boolean, list and object as a string, a common mistake of models."""
    kinds = {name: inner.get("type") for name, inner in schema.get("properties", {}).items()}
    mistaken = {
        name: json.dumps(value)
        for name, value in arguments.items()
        if not isinstance(value, str) and value is not None and kinds.get(name) not in (None, "string")
    }
    return {**arguments, **mistaken}


@pytest.mark.parametrize("row", bfcl_calls())
def test_values_written_as_text_are_coerced_only_if_coercion_is_on(row: dict[str, Any]) -> None:
    """Coercion restores the exact value; without coercion the call is refused."""
    schemas = {tool["name"]: tool["schema"] for tool in row["tools"]}
    for call, valid in zip(row["calls"], row["valid"], strict=True):
        schema = schemas.get(call["name"])
        if not valid or schema is None:
            continue
        mistaken = written_as_text(schema, call["arguments"])
        if mistaken != call["arguments"]:
            assert same(check_args(schema, copy.deepcopy(mistaken), True)["arguments"], call["arguments"])
            assert not check_args(schema, copy.deepcopy(mistaken), False)["ok"]


@pytest.mark.parametrize("row", rows("catalogues/tools.jsonl"))
def test_every_real_tool_schema_compiles_and_its_name_resolves(row: dict[str, Any]) -> None:
    """Schemas of real catalogues compile despite their mistakes; names resolve despite the changes that models make to them."""
    schema = compile_schema(row["schema"], row["name"])
    assert not schema.notes or compile_schema(schema.source, row["name"]).notes == ()
    name = row["name"]
    for spoiled in (name, f"functions.{name}", f" {name}\n", f'"{name}"', name.swapcase(), name.replace("_", "-")):
        assert resolve(spoiled, ["some_other_tool", name]) == name
    assert resolve("multi_tool_use.parallel", [name]) is None
