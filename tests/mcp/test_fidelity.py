"""What a server sends beyond what MCP defines reaches the host unchanged: in definitions of tools, results and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from callgate import Engine
from callgate.calls import Link, Resource, Text, ToolResult
from callgate.events import TERMINAL
from callgate.hooks import after_call
from callgate.mcp.mcp_tool import McpTool
from callgate.stage_types import Checked
from tests.engine_calls import call, said
from tests.mcp.fakes import Fake, tool

pytestmark = pytest.mark.process

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"z": {"$ref": "#/$defs/item"}, "a": {"$ref": "#here"}},
    "$defs": {"item": {"type": "string", "x-unit": "cm"}, "other": {"$anchor": "here", "type": "integer"}},
    "x-vendor": {"z": 1, "a": 2},
}
DEFINITION: dict[str, Any] = {
    "x-first": [1, None, 2.5],
    "name": "work",
    "title": "Work",
    "description": "Do work.",
    "inputSchema": SCHEMA,
    "annotations": {"readOnlyHint": True, "vendorHint": "v", "title": "T"},
    "icons": [{"src": "data:image/png;base64,AA==", "sizes": ["1x1"], "x-icon": 1}],
    "execution": {"taskSupport": "forbidden"},
    "_meta": {"com.example/z": {"b": 1, "a": 2}},
}


def answering(folder: Path, *, name: str = "fake", **answer: Any) -> Fake:
    """Return a server whose tool `work` answers with a result or an error."""
    text = json.dumps({"jsonrpc": "2.0", "id": "{ID}", **answer}).replace('"{ID}"', "{ID}")
    return Fake(folder, f"{text}\n", name=name, tools=[DEFINITION, tool("echo")])


async def result_with(folder: Path, **result: Any) -> ToolResult:
    async with Engine(servers=[answering(folder, result=result).server()]) as engine:
        return await said(engine, call("work"))


async def test_a_definition_is_kept_with_its_key_order_and_unknown_fields(tmp_path: Path) -> None:
    async with Engine(servers=[answering(tmp_path, result={}).server()]) as engine:
        found = engine.tools.get("work")
        assert found is not None
        assert isinstance(found.tool, McpTool)
        assert json.dumps(found.tool.definition) == json.dumps(DEFINITION)
        shown = engine.schemas("anthropic", ["work"])[0]["input_schema"]
    assert shown["properties"]["z"]


async def test_references_of_a_schema_are_followed_when_arguments_are_checked(tmp_path: Path) -> None:
    async with Engine(servers=[answering(tmp_path, result={"content": []}).server()]) as engine:
        assert (await said(engine, call("work", z="one", a=1))).success
        assert (await said(engine, call("work", z="one", a="no number"))).code == "schema_invalid"


async def test_meta_and_vendor_fields_of_a_result_are_kept(tmp_path: Path) -> None:
    result = await result_with(tmp_path, content=[{"type": "text", "text": "one"}], _meta={"z": 1, "a": {"b": None}}, xVendor=[1, {}])
    assert result.metadata.server_fields == {"_meta": {"z": 1, "a": {"b": None}}, "xVendor": [1, {}]}
    assert result.text == "one"


async def test_a_result_without_more_fields_has_none(tmp_path: Path) -> None:
    result = await result_with(tmp_path, content=[{"type": "text", "text": "one"}], isError=False, resultType="complete")
    assert result.metadata.server_fields is None


async def test_annotations_and_links_of_content_are_kept_at_their_places(tmp_path: Path) -> None:
    link = {
        "type": "resource_link",
        "uri": "a://1",
        "name": "one",
        "mimeType": "text/x",
        "title": "T",
        "size": 9,
        "icons": [{"src": "data:,"}],
    }
    file = {"type": "resource", "resource": {"uri": "a://2", "text": "two", "_meta": {"k": 1}, "x-file": True}}
    text = {"type": "text", "text": "three", "annotations": {"audience": ["user"], "vendor": 1}, "_meta": {"k": 2}}
    result = await result_with(tmp_path, content=[link, file, text])
    assert result.metadata.server_fields == {
        "content": [
            {"title": "T", "size": 9, "icons": [{"src": "data:,"}]},
            None,
            {"annotations": {"audience": ["user"], "vendor": 1}, "_meta": {"k": 2}},
        ]
    }
    assert result.content[0] == Link(uri="a://1", name="one", mime_type="text/x")
    assert result.content[1] == Resource(resource=file["resource"])  # type: ignore[arg-type]


async def test_content_of_an_unknown_type_is_text_for_the_model_and_whole_for_the_host(tmp_path: Path) -> None:
    item = {"type": "vendor/chart", "points": [[1, 2.5], [None, "ä"]], "deep": {"z": 1, "a": 2}}
    result = await result_with(tmp_path, content=[{"type": "text", "text": "one"}, item])
    assert result.metadata.server_fields == {"content": [None, item]}
    assert json.loads(result.content[1].text) == item  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [[1, "two"], "text", 0, False, None], ids=json.dumps)
async def test_structured_content_of_any_type_is_kept(tmp_path: Path, value: object) -> None:
    result = await result_with(tmp_path, content=[{"type": "text", "text": "said"}], structuredContent=value)
    assert (result.status, result.structured) == ("ok", value)
    assert result.metadata.server_fields == {"structuredContent": None}  # says that the value is of `structuredContent`
    assert Text(text="said") in result.content


async def test_a_failure_keeps_its_fields_and_its_structured_content(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "no", "annotations": {"priority": 1}}]
    result = await result_with(tmp_path, content=content, isError=True, structuredContent={"why": 1}, _meta={"k": 1})
    assert (result.status, result.error, result.structured) == ("error", "no", {"why": 1})
    assert result.metadata.server_fields == {"_meta": {"k": 1}, "content": [{"annotations": {"priority": 1}}]}


async def test_an_error_keeps_its_code_and_data(tmp_path: Path) -> None:
    error = {"code": -32042, "message": "needs more", "data": {"z": [1], "a": None}}
    async with Engine(servers=[answering(tmp_path, error=error).server()]) as engine:
        result = await said(engine, call("work"))
    assert result.status == "error"
    assert result.structured == {"jsonrpc_code": -32042, "jsonrpc_data": {"z": [1], "a": None}}


async def test_the_fields_are_recorded_once_and_without_what_the_content_has(tmp_path: Path) -> None:
    text = "0123456789" * 100
    item = {"type": "text", "text": text, "annotations": {"priority": 1}}
    async with Engine(servers=[answering(tmp_path, result={"content": [item], "_meta": {"k": 1}}).server()]) as engine:
        result = await said(engine, call("work"))
        recorded = next(event.body for event in engine.journal.read() if event.kind in TERMINAL)
    assert json.loads(recorded)["metadata"]["server_fields"] == result.metadata.server_fields
    assert json.dumps(result.metadata.server_fields).count(text) == 0


async def test_fields_that_are_larger_than_content_may_be_are_left_out_with_a_note(tmp_path: Path) -> None:
    result = await result_with(tmp_path, content=[{"type": "text", "text": "one"}], xVendor="x" * 300_000)
    assert result.metadata.server_fields is None
    assert any("other fields of the result have" in note.text for note in result.metadata.notes)
    assert result.text.startswith("one")


async def test_a_hook_that_replaces_a_result_removes_the_fields_too(tmp_path: Path) -> None:
    @after_call("work", kind="transform")
    def hide(_: object, __: object) -> object:
        return "hidden"

    secret = answering(tmp_path, result={"content": [{"type": "vendor/x", "secret": "s3"}], "_meta": {"secret": "s3"}})
    async with Engine(servers=[secret.server()], hooks=[hide]) as engine:
        result = await said(engine, call("work"))
        assert all(b"s3" not in event.body for event in engine.journal.read() if event.kind in TERMINAL)
    assert (result.text, result.metadata.server_fields) == ("hidden", None)


async def test_a_hook_that_replaces_the_text_of_a_failure_removes_the_fields_too(tmp_path: Path) -> None:
    @after_call("work", kind="transform")
    def hide(_: object, failed: Checked) -> Checked:
        return replace(failed, error="hidden")

    failure = {"isError": True, "content": [{"type": "text", "text": "s3"}], "_meta": {"secret": "s3"}}
    async with Engine(servers=[answering(tmp_path, result=failure).server()], hooks=[hide]) as engine:
        result = await said(engine, call("work"))
    assert (result.error, result.metadata.server_fields) == ("hidden", None)
