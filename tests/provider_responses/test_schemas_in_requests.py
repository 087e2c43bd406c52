"""`engine.schemas`: a provider accepts the definitions of all tools, because it refuses the whole request for one that it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from callgate import Engine, Tool, tool
from tests.provider_responses.recorded_bodies import ANSWERS, QUESTIONS, body
from tests.provider_responses.recorded_server import RecordedServer
from tests.provider_responses.sdk_requests import ASK, SDK_WARNINGS
from tests.provider_responses.shop import LookUp

pytestmark = SDK_WARNINGS


def tool_with(schema: dict[str, Any]) -> Tool:
    class Count(LookUp):
        name = "count"
        parameters = schema

    return Count()


async def declared(provider: str, *tools: Tool) -> dict[str, Any]:
    """Return the schema of the only tool in a request that the provider's SDK sends."""
    with RecordedServer(("application/json", body(ANSWERS[provider]))) as server:
        async with Engine(tools) as engine:
            await ASK[provider](server.url, list(QUESTIONS[provider]), engine.schemas(provider))
    sent = server.requests[0]
    (first,) = sent["toolConfig"]["tools"] if provider == "bedrock" else sent["tools"]
    if provider == "gemini":
        (first,) = first["functionDeclarations"]
    function = first.get("function") or first.get("toolSpec") or first
    schema: dict[str, Any] = function.get("parameters") or function.get("input_schema") or function["inputSchema"]["json"]
    return schema


def arrays(value: object) -> Iterator[dict[str, Any]]:
    """Yield the schemas of arrays inside of a schema, also those that may be something else."""
    if isinstance(value, dict):
        if value.get("type") == "array" or "array" in (value["type"] if isinstance(value.get("type"), list) else ()):
            yield value
        for inner in value.values():
            yield from arrays(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from arrays(inner)


@tool(effect="none")
def file(labels: list, place: tuple[int, str], old: list | None = None) -> str:  # type: ignore[type-arg]
    """File a thing."""
    return f"{labels} {place} {old}"


MIXED = {
    "type": "object",
    "properties": {"one_or_more": {"type": ["string", "array"]}, "rows": {"type": "array", "items": {"type": "array"}}},
}


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "mistral"])
@pytest.mark.parametrize(("offered", "number"), [(file, 3), (tool_with(MIXED), 3)], ids=["signature", "schema"])
async def test_every_array_that_openai_is_shown_says_what_its_items_are(provider: str, offered: Tool, number: int) -> None:
    """OpenAI answers "array schema missing items" to a request with any other array."""
    found = list(arrays(await declared(provider, offered)))
    assert len(found) == number
    assert all(isinstance(array["items"], dict) for array in found)


async def test_the_items_of_a_tuple_are_alternatives_for_openai() -> None:
    place = (await declared("openai", file))["properties"]["place"]
    assert place["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert (place["minItems"], place["maxItems"]) == (2, 2)


NODE = {"type": "object", "properties": {"article": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}, "required": ["article"]}


@pytest.mark.parametrize("provider", ASK)
async def test_the_arguments_behind_a_reference_at_the_root_are_shown(provider: str) -> None:
    """A recursive model of pydantic has such a schema; without its properties, the model would be told that there are no arguments."""
    schema = await declared(provider, tool_with({"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}))
    assert list(schema["properties"]) == ["article", "next"]
    assert schema["required"] == ["article"]


@pytest.mark.parametrize("provider", ASK)
async def test_an_sdk_sends_a_tool_with_a_parameter_of_any_type(provider: str) -> None:
    """Servers written in Go write `true` for it; Ollama's SDK takes objects only."""
    schema = await declared(provider, tool_with({"type": "object", "properties": {"value": True, "either": {"anyOf": [True, False]}}}))
    assert set(schema["properties"]) == {"value", "either"}
    assert True not in schema["properties"].values()


@tool(effect="none")
def find(article: str, most: int | None = None, place: dict[str, str] | None = None, sizes: list[int] | None = None) -> str:
    """Find an article."""
    return f"{article} {most} {place} {sizes}"


ORDER = {
    "type": "object",
    "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    "properties": {
        "kind": {"oneOf": [{"const": 1}, {"enum": [2, "x"]}]},
        "to": {"$ref": "#/$defs/Place", "description": "Where to."},
        "lines": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}


async def test_ollamas_sdk_sends_what_alternatives_and_references_say() -> None:
    """It leaves out every keyword of a parameter but its type, description, items and enum."""
    found = (await declared("ollama", find))["properties"]
    assert found["article"] == {"type": "string"}
    assert found["most"] == {"type": ["integer", "null"]}
    assert found["place"]["type"] == ["object", "null"]
    assert found["sizes"]["type"] == ["array", "null"]
    assert '"items":{"type":"integer"}' in found["sizes"]["description"]
    ordered = (await declared("ollama", tool_with(ORDER)))["properties"]
    assert ordered["to"]["type"] == "object"
    assert ordered["to"]["description"].startswith("Where to. JSON Schema: {")
    assert '"city"' in ordered["to"]["description"]
    assert ordered["kind"] == {"type": ["integer", "string"], "description": 'JSON Schema: {"oneOf":[{"const":1},{"enum":[2,"x"]}]}'}
    assert '"n"' in ordered["lines"]["description"]


def references(levels: int, *names: str) -> dict[str, Any]:
    """Return a schema in which each level refers to the next one under each of these names."""
    level = {f"level{number}": {"type": "object", "properties": {name: {"$ref": f"#/$defs/level{number + 1}"} for name in names}}
             for number in range(levels)}  # fmt: skip
    first = {"$ref": "#/$defs/level0"}
    return {"type": "object", "properties": {"a": first, "b": first}, "$defs": {**level, f"level{levels}": {"type": "integer"}}}


@pytest.mark.parametrize("provider", ["gemini", "ollama"])
@pytest.mark.parametrize("schema", [references(17, "left", "right"), references(1_000, "next")], ids=["that branch", "in a long chain"])
def test_references_cannot_make_a_schema_huge(provider: str, schema: dict[str, Any]) -> None:
    """These APIs read no references. A server's schema of a few lines must not fill the memory of its client."""
    assert len(str(Engine([tool_with(schema)]).schemas(provider))) < 2_000_000
