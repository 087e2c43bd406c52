"""Schemas as tools of other projects have them: they register, accept what their author meant, and refuse the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate import Engine, RawCall
from callgate.models.wire import codec
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.models.wire.tool_names import WireNames
from callgate.tools import Tool
from tests.engine_calls import result_of, said

DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"
PAIR = {"type": "array", "items": [{"type": "string"}, {"type": "number"}]}


class Foreign(Tool):
    """A tool whose schema comes from another project."""

    name = "foreign"
    description = "Returns its arguments."
    category = "safe_chain"
    requires_actor = False

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters

    async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
        return {"got": params}


def of(value: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an object schema with one required parameter `v`."""
    return {"type": "object", "properties": {"v": value}, "required": ["v"], **more}


SCHEMAS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "a tuple": (of(PAIR), ["a", 1.5], [1.5, "a"]),
    "a tuple with its draft": (of(PAIR, **{"$schema": DRAFT_7}), ["a", 1.5], [1.5, "a"]),
    "a tuple in the wrong draft": (of(PAIR, **{"$schema": "https://json-schema.org/draft/2020-12/schema"}), ["a", 1.5], [1.5, "a"]),
    "a closed tuple": (of({**PAIR, "additionalItems": False}), ["a", 1.5], ["a", 1.5, 2]),
    "a tuple with a rest": (of({**PAIR, "additionalItems": {"type": "null"}}), ["a", 1.5, None], ["a", 1.5, 2]),
    "an empty tuple": (of({"type": "array", "items": []}), [1], 1),
    "a reference into a tuple": (
        {**of({"$ref": "#/properties/pair/items/1"}), "properties": {"v": {"$ref": "#/properties/pair/items/1"}, "pair": PAIR}},
        1.5,
        "a",
    ),
    "a doubled required entry": (of({"type": "string"}, required=["v", "v"]), "a", 1),
    "a doubled entry inside": (of({"type": "object", "properties": {"a": {}}, "required": ["a", "a"]}), {"a": 1}, {}),
    "a doubled type": (of({"type": ["string", "string", "null"]}), None, 1),
    "flags of draft 4": (of({"type": "number", "minimum": 0, "exclusiveMinimum": True}), 1, 0),
    "draft 4": (of({"type": "number", "minimum": 0, "exclusiveMinimum": True}, **{"$schema": DRAFT_4}), 1, 0),
    "nullable": (of({"type": "string", "nullable": True}), None, 1),
    "a nullable choice": (of({"type": "string", "enum": ["a"], "nullable": True}), None, "b"),
    "null or text": (of({"type": ["string", "null"]}), None, 1),
    "a null list of another language": (of({"type": "string", "enum": None, "description": None}, additionalProperties=None), "a", 1),
    "types in capitals": (of({"type": "STRING"}), "a", 1),
    "another spelling of a draft": (of({"type": "string"}, **{"$schema": "https://json-schema.org/draft-07/schema/"}), "a", 1),
    "an old draft": (of({"type": "string"}, **{"$schema": "http://json-schema.org/draft-03/schema#"}), "a", 1),
    "no draft": (of({"type": "string"}, **{"$schema": ""}), "a", 1),
    "a constant": (of({"const": "a"}), "a", "b"),
    "an unknown format": (of({"type": "string", "format": "of-ours"}), "a", 1),
    "keywords of a vendor": (of({"type": "string", "x-order": 1}, **{"x-internal": {"a": 1}}), "a", 1),
    "definitions": (of({"$ref": "#/definitions/name"}, definitions={"name": {"type": "string"}}), "a", 1),
    "a recursive schema": (
        of({"$ref": "#/$defs/node"}, **{"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}}),
        {"next": {"next": {}}},
        {"next": 1},
    ),
    "alternatives at the root": ({"anyOf": [of({"type": "string"}), of({"type": "integer"})]}, "a", 1.5),
    "empty objects as PHP writes them": (of({"type": "object", "properties": [], "required": []}, **{"$defs": []}), {}, 1),
    "examples that are no list": (of({"type": "string", "examples": "a"}), "a", 1),
}


@pytest.mark.parametrize(("schema", "good", "bad"), SCHEMAS.values(), ids=SCHEMAS)
async def test_a_schema_of_another_project_registers_and_checks_calls(schema: dict[str, Any], good: object, bad: object) -> None:
    """The value that its author meant reaches the tool unchanged, and another one is refused. The given schema is not changed."""
    before = json.dumps(schema)
    async with Engine([Foreign(schema)]) as engine:
        result = await said(engine, RawCall(name="foreign", arguments=json.dumps({"v": good})))
        assert result.structured == {"got": {"v": good}}, result.text
        assert (await said(engine, RawCall(name="foreign", arguments=json.dumps({"v": bad})))).code == "schema_invalid"
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("schema", "good"),
    [
        ({}, {"a": 1}),
        ({"type": "object"}, {}),
        ({"type": "object", "properties": None, "required": None}, {}),
        ({"type": "object", "properties": []}, {}),
    ],
    ids=["empty", "no properties", "null properties", "a list of no properties"],
)
async def test_a_schema_without_parameters_registers(schema: dict[str, Any], good: dict[str, object]) -> None:
    async with Engine([Foreign(schema)]) as engine:
        assert (await said(engine, RawCall(name="foreign", arguments=json.dumps(good)))).structured == {"got": good}


async def test_a_tool_without_parameters_refuses_all_arguments_if_it_says_so() -> None:
    async with Engine([Foreign({"type": "object", "additionalProperties": False})]) as engine:
        assert (await said(engine, RawCall(name="foreign", arguments="{}"))).structured == {"got": {}}
        assert (await said(engine, RawCall(name="foreign", arguments='{"a": 1}'))).code == "schema_invalid"


def test_a_valid_schema_reaches_the_host_unchanged() -> None:
    """Only what no validator or provider accepts is repaired."""
    schema = of({"type": "string", "x-order": 1, "format": "of-ours"}, **{"$schema": DRAFT_7, "definitions": {"a": PAIR}})
    assert Engine([Foreign(schema)]).tools.openai()[0]["function"]["parameters"] == schema


@pytest.mark.parametrize("api", ["openai.chat", "openai.responses", "anthropic.messages", "bedrock.converse", "cohere.chat", "ollama.chat"])
def test_a_request_has_no_form_of_an_older_draft_because_it_has_no_draft(api: str) -> None:
    """Providers read every schema as draft 2020-12, and refuse a request with a tuple under `items` or a flag as bound."""
    bound = {"type": "number", "minimum": 0, "exclusiveMinimum": True}
    schema = {**of(PAIR), "properties": {"v": PAIR, "w": bound}, "$schema": DRAFT_4}
    tools = (ToolSpec(name="foreign", description="d", schema=schema),)
    body = codec(api).encode(ModelRequest(model="m", messages=(), tools=tools), WireNames(), {}).body.decode()
    assert '"prefixItems":[{"type":"string"},{"type":"number"}]' in body.replace(" ", "")
    assert '"exclusiveMinimum":0' in body.replace(" ", "")
    assert schema["properties"]["v"] == PAIR


CARD = {"type": "object", "properties": {"type": {"enum": ["card"]}, "number": {"type": "string"}}, "required": ["type", "number"]}
IBAN = {"type": "object", "properties": {"type": {"const": "iban"}, "iban": {"type": "string"}}, "required": ["type", "iban"]}
TAGGED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "another alternative's key": ({"type": "iban", "number": "1"}, ["v.iban: expected text, got nothing: it is missing"]),
    "a missing key": ({"type": "card"}, ["v.number: expected text, got nothing: it is missing"]),
    "a wrong value": ({"type": "card", "number": 5}, ["v.number: expected text, got 5"]),
    "an unknown tag": ({"type": "cash", "number": "1"}, ['v.type: expected one of "card", or "iban", got "cash"']),
}


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
@pytest.mark.parametrize(("value", "told"), TAGGED.values(), ids=TAGGED)
def test_a_wrong_argument_is_described_by_the_alternative_that_its_tag_names(keyword: str, value: object, told: list[str]) -> None:
    """And no value of another alternative is suggested, which a model would send."""
    engine = Engine([Foreign(of({keyword: [CARD, IBAN]}))])
    result = result_of(engine.call_sync(RawCall(name="foreign", arguments={"v": value})))
    assert [line.removeprefix("- ") for line in (result.error or "").splitlines()[1:]] == told


def test_an_unknown_key_is_answered_with_all_keys_that_exist() -> None:
    engine = Engine([Foreign({"type": "object", "properties": {"limit": {}, "kind": {}}, "additionalProperties": False})])
    result = result_of(engine.call_sync(RawCall(name="foreign", arguments={"limit": 5, "page": 2})))
    assert "page: this key is unknown here; it takes kind, limit" in (result.error or "")


DEGREES = {"type": "object", "properties": {"unit": {"enum": ["C", "F"]}, "value": {"type": "integer"}}, "required": ["unit"]}
KELVIN = {"type": "object", "properties": {"kelvin": {"type": "integer"}}, "required": ["kelvin"]}
UNTAGGED: dict[str, tuple[list[dict[str, Any]], object, str]] = {
    "an object or null": ([DEGREES, {"type": "null"}], {"unit": "K"}, 'v.unit: expected one of "C", "F", got "K"; "C" would pass'),
    "one or a list": ([DEGREES, {"type": "array", "items": DEGREES}], {"unit": "C", "value": "x"}, 'v.value: expected an integer, got "x"'),
    "two objects": (
        [DEGREES, KELVIN],
        {"unit": "K"},
        "v: expected one of \"C\", \"F\", or an object with 'kelvin', got an object with 'unit'",
    ),
    "tagged objects or null": (
        [CARD, IBAN, {"type": "null"}],
        {"type": "cash"},
        'v.type: expected one of "card", or "iban", got "cash"',
    ),
}


@pytest.mark.parametrize(("alternatives", "value", "told"), UNTAGGED.values(), ids=UNTAGGED)
def test_a_wrong_choice_within_an_object_is_not_taken_for_a_wrong_kind_of_object(
    alternatives: list[dict[str, Any]], value: object, told: str
) -> None:
    engine = Engine([Foreign(of({"anyOf": alternatives}))])
    result = result_of(engine.call_sync(RawCall(name="foreign", arguments={"v": value})))
    assert [line.removeprefix("- ") for line in (result.error or "").splitlines()[1:]] == [told]
