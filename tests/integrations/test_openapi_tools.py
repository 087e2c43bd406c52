"""Tools from an OpenAPI document: names, schemas, effects and options. See `test_openapi_requests` for their calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Tool, UsageError
from callgate.integrations.openapi import openapi_tools
from tests.integrations.shop_document import operation, shop

BASE = "https://api.example"


def by_name(tools: list[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


def parameters_of(tool: Tool) -> dict[str, Any]:
    """Return the schema as a model gets it: from an engine's registry."""
    engine = Engine([tool])
    (shown,) = engine.tools.openai()
    engine.close_sync()
    found = shown["function"]["parameters"]
    assert isinstance(found, dict)
    return found


def test_each_operation_becomes_one_tool_with_a_name_a_description_and_an_effect() -> None:
    assert {tool.name: (tool.effect, tool.description) for tool in openapi_tools(shop())} == {
        "listArticles": ("none", "List articles"),
        "createArticle": ("once", "Create an article"),
        "readArticle": ("none", "Read an article by its id."),
        "replaceArticle": ("idempotent", "PUT /articles/{articleId}"),
        "patch__articles_articleId": ("once", "Change an article"),
        "delete_article": ("idempotent", "DELETE /articles/{articleId}"),
        "checkArticle": ("none", "HEAD /articles/{articleId}"),
    }


def test_the_schema_has_the_parameters_and_the_body_with_their_schemas_and_what_they_refer_to() -> None:
    schema = parameters_of(by_name(openapi_tools(shop()))["replaceArticle"])
    assert schema == {
        "type": "object",
        "properties": {
            "articleId": {"type": "string", "description": "The article's id."},
            "body": {"$ref": "#/$defs/Article"},
        },
        "required": ["articleId", "body"],
        "additionalProperties": False,
        "$defs": {
            "Article": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "price": {"type": "number", "exclusiveMinimum": 0},
                    "parts": {"type": "array", "items": {"$ref": "#/$defs/Article"}},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    }


def test_reading_a_document_does_not_change_it() -> None:
    document = shop()
    openapi_tools(document)
    assert document == shop()


def test_schemas_of_version_3_0_become_json_schema() -> None:
    parameter = {"type": "string", "nullable": True, "enum": ["a"]}
    limit = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
    schema = {"type": "object", "properties": {"thing": {"allOf": [{"$ref": "#/components/schemas/T"}], "nullable": True}, "n": limit}}
    body = {"content": {"application/json": {"schema": schema}}}
    document = operation({"name": "kind", "in": "query", "schema": parameter}, method="post", version="3.0.3", requestBody=body)
    document["components"] = {
        "schemas": {"T": {"type": "object", "properties": {"up": {"$ref": "#/components/schemas/T", "nullable": True}}}}
    }
    found = parameters_of(openapi_tools(document, base_url=BASE)[0])
    assert found["properties"]["kind"] == {"type": ["string", "null"], "enum": ["a", None]}
    assert found["properties"]["body"]["properties"] == {
        "thing": {"anyOf": [{"allOf": [{"$ref": "#/$defs/T"}]}, {"type": "null"}]},
        "n": {"type": "integer", "exclusiveMinimum": 0},
    }
    assert found["$defs"]["T"] == {"type": "object", "properties": {"up": {"$ref": "#/$defs/T"}}}


BASE_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer", "readOnly": True}, "kind": {"type": "string"}},
    "required": ["kind"],
}
COMBINED: dict[str, dict[str, Any]] = {
    "allOf": {"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "name"]}]},
    "anyOf": {"anyOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id"]}], "required": ["id", "name"]},
    "oneOf": {"oneOf": [{"$ref": "#/components/schemas/Base"}], "required": ["id", "name"]},
    "a reference": {"allOf": [{"$ref": "#/components/schemas/Base"}, {"$ref": "#/components/schemas/Named"}]},
    "two levels": {"allOf": [{"allOf": [{"$ref": "#/components/schemas/Base"}]}, {"allOf": [{"$ref": "#/components/schemas/Named"}]}]},
    "the object itself": {"properties": BASE_SCHEMA["properties"], "allOf": [{"$ref": "#/components/schemas/Named"}]},
}


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
@pytest.mark.parametrize("schema", COMBINED.values(), ids=COMBINED)
def test_a_read_only_property_is_required_nowhere_in_a_combined_object(schema: dict[str, Any], version: str) -> None:
    read = operation(method="post", version=version, requestBody={"required": True, "content": {"application/json": {"schema": schema}}})
    named = {"type": "object", "required": ["id", "name"]}
    (tool,) = openapi_tools(read | {"components": {"schemas": {"Base": BASE_SCHEMA, "Named": named}}}, base_url=BASE)
    assert tool.validate_parameters({"body": {"kind": "dog", "name": "Rex"}}).valid
    assert not tool.validate_parameters({"body": {"kind": "dog"}}).valid


def test_a_schema_requires_its_own_property_where_it_is_not_combined_with_a_read_only_one() -> None:
    named = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
    both = {"allOf": [{"$ref": "#/components/schemas/Base"}, {"$ref": "#/components/schemas/Named"}]}
    schema = {"type": "object", "properties": {"one": {"$ref": "#/components/schemas/Named"}, "both": both}}
    read = operation(method="post", requestBody={"content": {"application/json": {"schema": schema}}})
    (tool,) = openapi_tools(read | {"components": {"schemas": {"Base": BASE_SCHEMA, "Named": named}}}, base_url=BASE)
    assert tool.validate_parameters({"body": {"one": {"id": "x"}, "both": {"kind": "dog"}}}).valid
    assert not tool.validate_parameters({"body": {"one": {}, "both": {"kind": "dog"}}}).valid


def test_a_read_only_property_of_a_reference_is_not_required_beside_it() -> None:
    schema = {"$ref": "#/components/schemas/Base", "required": ["id"]}
    read = operation(method="post", requestBody={"content": {"application/json": {"schema": schema}}})
    (tool,) = openapi_tools(read | {"components": {"schemas": {"Base": BASE_SCHEMA}}}, base_url=BASE)
    assert tool.validate_parameters({"body": {"kind": "dog"}}).valid


def test_a_property_or_an_example_that_is_called_ref_is_no_reference() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}, "examples": [{"$ref": "nowhere"}]}
    body = {"content": {"application/json": {"schema": schema}}}
    (tool,) = openapi_tools(operation(method="post", requestBody=body), base_url=BASE)
    assert tool.parameters is not None
    assert tool.parameters["properties"]["body"] == schema


def test_parameters_with_one_name_get_their_place_and_an_operation_replaces_a_parameter_of_its_path() -> None:
    def named(name: str, place: str, kind: str = "string") -> dict[str, Any]:
        return {"name": name, "in": place, "required": place == "path", "schema": {"type": kind}}

    body = {"content": {"application/json": {"schema": {"type": "array"}}}}
    document = operation(named("id", "query"), named("id", "path", "integer"), named("body", "query"), path="/t/{id}", method="post")
    document["paths"]["/t/{id}"]["post"]["requestBody"] = body
    document["paths"]["/t/{id}"]["parameters"] = [named("id", "path")]
    assert parameters_of(openapi_tools(document, base_url=BASE)[0])["properties"] == {
        "id": {"type": "integer"},
        "id_query": {"type": "string"},
        "body_query": {"type": "string"},
        "body": {"type": "array"},
    }


def test_names_are_unique_and_at_most_64_characters() -> None:
    document = operation()
    path = document["paths"]["/things"]
    path["post"] = {"operationId": "ask"}
    path["put"] = {"operationId": "x" * 80}
    path["patch"] = {"operationId": "x" * 80}
    assert [tool.name for tool in openapi_tools(document, base_url=BASE)] == ["ask", "x" * 64, "ask_2", "x" * 62 + "_2"]


def test_effects_are_overridden_by_id_name_operation_or_pattern_and_a_name_wins() -> None:
    effects: dict[str, Any] = {
        "createArticle": "idempotent",
        "PATCH /articles/{articleId}": "none",
        "* /articles*": "once",
        "check*": "none",
    }
    tools = by_name(openapi_tools(shop(), effects=effects | {"delete article!": "none"}))
    assert {name: tool.effect for name, tool in tools.items()} == {
        "listArticles": "once",
        "createArticle": "idempotent",
        "readArticle": "once",
        "replaceArticle": "once",
        "patch__articles_articleId": "none",
        "delete_article": "none",
        "checkArticle": "none",
    }


def test_operations_are_chosen_with_include_and_exclude() -> None:
    assert [tool.name for tool in openapi_tools(shop(), include=["GET *", "createArticle"], exclude=["readArticle"])] == [
        "listArticles",
        "createArticle",
    ]


def test_headers_and_query_parameters_of_the_host_are_no_arguments() -> None:
    def named(name: str, place: str) -> dict[str, Any]:
        return {"name": name, "in": place, "schema": {"type": "string"}}

    document = operation(named("X-Key", "header"), named("Authorization", "header"), named("X-Trace", "header"), named("api_key", "query"))
    (tool,) = openapi_tools(document, base_url=BASE, headers={"x-key": "secret"}, query={"api_key": "k"})
    assert list(parameters_of(tool)["properties"]) == ["X-Trace"]


def test_a_document_is_read_from_json_text_a_json_file_and_a_yaml_file(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    document = operation(responses={"200": {"description": "as of 2020-01-01"}}, summary="Ask")
    document["info"]["date"] = "2020-01-01"
    (tmp_path / "api.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "api.yaml").write_text(yaml.safe_dump(document).replace("'", ""), encoding="utf-8")
    sources: list[Any] = [json.dumps(document), tmp_path / "api.json", str(tmp_path / "api.yaml"), (tmp_path / "api.yaml").read_text()]
    assert [[tool.description for tool in openapi_tools(source, base_url=BASE)] for source in sources] == [["Ask"]] * 4


def test_a_version_that_is_written_as_a_number_is_read() -> None:
    assert [tool.name for tool in openapi_tools(json.dumps(operation() | {"openapi": 3.1}), base_url=BASE)] == ["ask"]


def test_without_pyyaml_and_httpx2_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text("openapi: 3.1.0\n", encoding="utf-8")
    code = """
import sys
sys.modules[sys.argv[1]] = None
from callgate import UsageError
from callgate.integrations.openapi import openapi_tools
try:
    openapi_tools(sys.argv[2])
except UsageError as error:
    print(error)
"""
    told = {
        name: subprocess.run([sys.executable, "-c", code, name, source], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for name, source in (("yaml", "api.yaml"), ("httpx2", '{"openapi": "3.1.0", "paths": {}}'))
    }
    assert "pip install pyyaml" in told["yaml"]
    assert "pip install 'callgate[models]'" in told["httpx2"]


def parameter(**more: Any) -> dict[str, Any]:
    return {"name": "q", "in": "query", "schema": {"type": "string"}, **more}


def body(media_type: str = "application/json", schema: object = None) -> dict[str, Any]:
    return {"requestBody": {"content": {media_type: {"schema": schema or {}}}}}


WRONG: dict[str, tuple[Any, str]] = {
    "no object": ([1], "takes a dict, JSON text"),
    "broken text": ('{"openapi": ', "not valid JSON"),
    "no file": ("missing.json", "missing.json cannot be read"),
    "swagger": ({"swagger": "2.0", "paths": {}}, "Swagger 2.0"),
    "no version": ({"paths": {}}, "openapi=None"),
    "no paths": ({"openapi": "3.1.0"}, "'paths' is missing"),
    "a path without a slash": ({"openapi": "3.1.0", "paths": {"pets": {}}}, "'pets'"),
    "a parameter without a name": (operation({"in": "query"}), "'ask' (GET /things), parameters/0: the parameter's name is missing"),
    "a parameter nowhere": (operation(parameter(**{"in": "body"})), "parameter 'q' has in='body'"),
    "parameters that are no list": (operation() | {"paths": {"/t": {"get": {"parameters": {}}}}}, "GET /t: 'parameters' is an object"),
    "an unknown style": (operation(parameter(style="matrix")), "query parameter 'q' has style='matrix'"),
    "a schema that is no object": (operation(parameter(schema="string")), "query parameter 'q': the schema is 'string'"),
    "a reference to nowhere": (operation(parameter(schema={"$ref": "#/components/schemas/No"})), "'#/components/schemas/No' leads nowhere"),
    "a reference to a file": (operation(parameter(schema={"$ref": "other.json#/T"})), "'other.json#/T' leads to another document"),
    "references in a circle": (
        operation({"$ref": "#/x"}) | {"x": {"$ref": "#/y"}, "y": {"$ref": "#/x"}},
        "'ask' (GET /things), parameters/0: its $ref leads in a circle",
    ),
    "a placeholder without a parameter": (operation(path="/t/{id}"), "the path has {id}, but there is no path parameter 'id'"),
    "a parameter without a placeholder": (operation(parameter(**{"in": "path"})), "the path has no {q}"),
    "a body that cannot be sent": (operation(method="post", **body("multipart/mixed")), "takes multipart/mixed"),
    "a body without content": (operation(method="post", requestBody={}), "requestBody: 'content' is missing"),
    "no host": (operation(), "which has no host. Give base_url"),
    "a URL": ("https://api.example.com/openapi.json", "fetches nothing. Fetch it, and give its text"),
    "a number of another version": (operation() | {"openapi": 2.0}, "openapi='2.0'"),
}


@pytest.mark.parametrize(("document", "told"), WRONG.values(), ids=WRONG)
def test_a_wrong_document_is_refused_with_the_operation_and_the_place(document: Any, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        openapi_tools(document, base_url=None if "host" in told else BASE)
    assert told in str(caught.value)


WRONG_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown operation": ({"include": ["listArticle"]}, "did you mean 'listArticles'?"),
    "an unknown operation with an effect": ({"effects": {"createArticles": "none"}}, "did you mean 'createArticle'?"),
    "an unknown effect": ({"effects": {"createArticle": "twice"}}, "one of none, idempotent, once"),
    "one name instead of a list": ({"exclude": "readArticle"}, "a list of names"),
    "a header without a name": ({"headers": {"": "x"}}, "headers: '' cannot be the name of a header"),
    "a key in no header": ({"idempotency_header": "Idempotency Key"}, "idempotency_header: 'Idempotency Key' cannot be the name"),
    "a header of two lines": ({"headers": {"X-Key": "se\ncret"}}, "value of header 'X-Key' must be one line"),
    "an unknown option": ({"base": "x"}, "no option 'base'"),
    "a header without its token": ({"headers": {"Authorization": "Bearer "}}, "ends with a blank"),
    "two authorizations": (
        {"headers": {"Authorization": "Bearer t"}, "base_url": "https://eve:secret@api.example"},
        "would replace the header Authorization",
    ),
    "an address without a scheme": ({"base_url": "127.0.0.1:1"}, "base_url is '127.0.0.1:1'; it must begin with 'https://'"),
    "options of an unknown operation": ({"options": {"createArticles": {"timeout_s": 1}}}, "did you mean 'createArticle'?"),
    "an unknown option of an operation": ({"options": {"createArticle": {"approval": True}}}, "approval"),
    "an effect in options": ({"options": {"createArticle": {"effect": "none"}}}, "Write effects={'createArticle': 'none'}"),
    "options that are no mapping": ({"options": {"createArticle": "slow"}}, "it must be a mapping of options"),
}


@pytest.mark.parametrize(("options", "told"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_a_wrong_option_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        openapi_tools(shop(), **options)
    assert told in str(caught.value)
    assert "cret" not in str(caught.value)
