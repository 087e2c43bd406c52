"""Content blocks of providers' APIs and of MCP, as tools that were written for an SDK return them, reach the model as what they are."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.mcpserver import Image as ServerImage
from mcp.types import CallToolResult, ImageContent, TextContent
from pydantic import BaseModel

from callgate import Engine, Link, Tool, tool
from callgate.calls import Audio, Image, Resource, Text
from tests.engine_calls import call, said

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
URL = f"data:image/png;base64,{PNG}"
PDF = "JVBERi0xLjQKJSVFT0Y="
FILE = {"mimeType": "application/pdf", "blob": PDF}
ANTHROPIC = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
MCP = {"type": "image", "data": PNG, "mimeType": "image/png"}
PICTURE = Image(data=PNG, mime_type="image/png")


async def result_with(value: Any) -> Any:
    """Return the result of a tool that returns a value."""

    async def look() -> Any:
        """Look."""
        return value

    async with Engine([tool(look, effect="none")]) as engine:
        return await said(engine, call("look"))


async def content_of(value: Any, *, thread: bool = False) -> tuple[Any, ...]:
    async def look() -> Any:
        """Look."""
        return value

    def look_in_thread() -> Any:
        """Look."""
        return value

    async with Engine([tool(look_in_thread if thread else look, name="look", effect="none")]) as engine:
        result = await said(engine, call("look"))
    assert result.success, result
    return result.content


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize(
    ("block", "part"),
    [
        (ANTHROPIC, Image(data=PNG, mime_type="image/png")),
        ({"type": "input_image", "image_url": URL, "detail": "low"}, Image(data=PNG, mime_type="image/png")),
        ({"type": "image_url", "image_url": {"url": URL}}, Image(data=PNG, mime_type="image/png")),
        ({"type": "image", "data": PNG, "mimeType": "image/png"}, Image(data=PNG, mime_type="image/png")),
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, Audio(data="AAAA", mime_type="audio/wav")),
        (
            {"type": "document", "title": "May 1", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
            Resource(resource={"uri": "file:///May%201", **FILE}),
        ),
        (
            {"type": "input_file", "filename": "may.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
            Resource(resource={"uri": "file:///may.pdf", **FILE}),
        ),
        ({"type": "image", "data": PNG, "mime_type": "image/png"}, PICTURE),
        ({"type": "image", "base64": PNG, "mime_type": "image/png"}, PICTURE),
        ({"inline_data": {"mime_type": "image/png", "data": PNG}}, PICTURE),
        ({"inlineData": {"mimeType": "image/png", "data": PNG}}, PICTURE),
        ({"image": {"format": "png", "source": {"bytes": base64.b64decode(PNG)}}}, PICTURE),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}, Audio(data="AAAA", mime_type="audio/mpeg")),
        (
            {"type": "file", "file": {"filename": "may.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
            Resource(resource={"uri": "file:///may.pdf", **FILE}),
        ),
        ({"type": "resource", "resource": {"uri": "a:1", **FILE}}, Resource(resource={"uri": "a:1", **FILE})),
        ({"type": "resource_link", "uri": "a:1", "name": "May"}, Link(uri="a:1", name="May")),
        (
            {"type": "document", "title": "May", "source": {"type": "text", "media_type": "text/plain", "data": "Sales"}},
            Resource(resource={"uri": "file:///May", "mimeType": "text/plain", "text": "Sales"}),
        ),
    ],
)
async def test_a_block_with_its_bytes_is_a_part(block: dict[str, Any], part: Any, thread: bool) -> None:
    assert await content_of([{"type": "text", "text": "May"}, block], thread=thread) == (Text(text="May"), part)
    assert await content_of(block, thread=thread) == (part,)


@pytest.mark.parametrize(
    "value",
    [
        [{"type": "text", "text": "May", "page": 3}],
        ["May", "June"],
        {"type": "image", "data": "see below", "mimeType": "image/png"},
        {"type": "image", "data": PDF, "mimeType": "image/png"},
        {"png": PNG},
        f"data:text/plain;base64,{PDF}",
        f"data:image/png;base64,{PDF}",
        f"See {URL}",
        "data: none",
        {"content": "May", "isError": "no"},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "image", "width": 3},
        {"type": "document", "id": 7},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "text", "text": 3},
    ],
)
async def test_anything_else_stays_data(value: Any) -> None:
    (part,) = await content_of(value)
    assert isinstance(part, Text)


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize(
    "other",
    [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "search_result", "source": "x", "title": "X", "content": [{"type": "text", "text": "May"}]},
        {"type": "tool_reference", "tool_name": "pay"},
    ],
    ids=lambda block: f"{block['type']} {block.get('source', '')}",
)
async def test_a_block_of_another_kind_is_text_beside_parts(other: dict[str, Any], thread: bool) -> None:
    """It must not turn an image beside it into Base64 that the model reads as text."""
    picture = Image(data=PNG, mime_type="image/png")
    text, before = await content_of([other, ANTHROPIC], thread=thread)
    assert (json.loads(text.text), before) == (other, picture)
    assert await content_of(["May", ANTHROPIC, {"type": "text", "text": "June"}], thread=thread) == (
        Text(text="May"),
        picture,
        Text(text="June"),
    )


async def test_text_blocks_alone_are_texts() -> None:
    assert await content_of([{"type": "text", "text": "May", "cache_control": {"type": "ephemeral"}}]) == (Text(text="May"),)
    assert await content_of([{"type": "text", "text": text} for text in ("May", "June")]) == (Text(text="May"), Text(text="June"))


async def test_blocks_match_the_return_annotation_that_blocks_have() -> None:
    """A tool that was written for an SDK says that it returns dicts."""

    @tool(effect="none")
    def chart() -> list[dict[str, Any]]:
        """Draw a chart."""
        return [{"type": "text", "text": "May"}, ANTHROPIC]

    @tool(effect="none")
    def picture() -> dict[str, Any]:
        """Draw a picture."""
        return ANTHROPIC

    shown = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "[70 bytes]"}}
    async with Engine([chart, picture]) as engine:
        several, single = await said(engine, call("chart")), await said(engine, call("picture"))
    assert (several.success, several.structured) == (True, [{"type": "text", "text": "May"}, shown])
    assert several.content == (Text(text="May"), Image(data=PNG, mime_type="image/png"))
    assert (single.success, single.structured) == (True, shown)


class Block(TypedDict):
    """An image of MCP."""

    type: Literal["image"]
    data: str
    mimeType: str


class Shot(TypedDict):
    page: bytes


async def test_data_without_their_bytes_still_match_an_exact_return_annotation() -> None:
    @tool(effect="none")
    def blocks() -> list[Block]:
        """Draw."""
        return [{"type": "image", "data": PNG, "mimeType": "image/png"}]

    @tool(effect="none")
    def url() -> str:
        """Draw."""
        return URL

    @tool(effect="none")
    def shot() -> Shot:
        """Draw."""
        return {"page": base64.b64decode(PNG)}

    async with Engine([blocks, url, shot]) as engine:
        results = [await said(engine, call(name)) for name in ("blocks", "url", "shot")]
    assert [(result.status, result.content[-1]) for result in results] == [("ok", PICTURE)] * 3
    assert [result.structured for result in results] == [
        [{"type": "image", "data": "[70 bytes]", "mimeType": "image/png"}],
        "data:image/png;base64,[70 bytes]",
        {"page": "[image/png, 70 bytes]"},
    ]


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"result": MCP}, {"result": {**MCP, "data": "[70 bytes]"}}),
        ({"chart": URL}, {"chart": "data:image/png;base64,[70 bytes]"}),
        ([{"tab": "May", "icon": {"src": URL}}], [{"tab": "May", "icon": {"src": "data:image/png;base64,[70 bytes]"}}]),
        ({"shot": base64.b64decode(PNG), "raw": b"hi"}, {"shot": "[image/png, 70 bytes]", "raw": "aGk="}),
    ],
)
async def test_an_image_anywhere_in_the_data_follows_the_data(value: Any, data: Any, thread: bool) -> None:
    text, picture = await content_of(value, thread=thread)
    assert (json.loads(text.text), picture) == (data, PICTURE)


@pytest.mark.parametrize("thread", [False, True])
async def test_a_data_url_of_an_image_is_the_image_and_a_text_part_stays_text(thread: bool) -> None:
    assert await content_of(URL, thread=thread) == (PICTURE,)
    assert await content_of(["May", URL], thread=thread) == (Text(text="May"), PICTURE)
    assert await content_of(Text(text=URL), thread=thread) == (Text(text=URL),)


@pytest.mark.parametrize("block", [MCP, {"type": "image", "base64": PNG, "mime_type": "image/png"}, {"inlineData": {**MCP, "type": None}}])
async def test_what_a_tool_has_added_to_a_block_is_shown_before_the_image(block: dict[str, Any]) -> None:
    for value in ({**block, "caption": "May"}, [{**block, "caption": "May"}, {"type": "text", "text": "June"}]):
        text, picture, *_ = await content_of(value)
        assert json.loads(text.text)["caption"] == "May"
        assert PNG not in text.text
        assert picture == PICTURE


async def test_a_text_or_a_link_to_which_a_tool_has_added_data_is_data() -> None:
    for value in (
        {"type": "resource", "resource": {"uri": "a:1", "text": "May"}, "price": 7},
        {"type": "resource_link", "uri": "a:1", "name": "May", "price": 7},
        {"content": [{"type": "text", "text": "May"}], "isError": False, "price": 7},
    ):
        (text,) = await content_of(value)
        assert json.loads(text.text) == value


async def test_items_beside_an_image_that_are_no_blocks_are_texts() -> None:
    assert await content_of([ANTHROPIC, {"order": "A7"}, 7]) == (PICTURE, Text(text='{"order":"A7"}'), Text(text="7"))


async def test_an_image_in_a_block_of_another_kind_follows_the_block() -> None:
    block = {"type": "search_result", "content": [{"type": "text", "text": "May"}, ANTHROPIC]}
    text, inner, outer = await content_of([block, ANTHROPIC])
    assert PNG not in text.text
    assert (inner, outer) == (PICTURE, PICTURE)


WRAPPED = [
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "May"}, ANTHROPIC]},
    {"content": [{"type": "text", "text": "May"}, MCP], "isError": False},
    CallToolResult.model_validate({"content": [{"type": "text", "text": "May"}, MCP]}),
    [TextContent(type="text", text="May"), ImageContent.model_validate(MCP)],
    ["May", ServerImage(data=base64.b64decode(PNG), format="png")],
]


@pytest.mark.parametrize("value", WRAPPED, ids=["Anthropic", "MCP", "MCP's object", "MCP's contents", "MCP's image"])
async def test_a_tool_result_of_an_api_is_its_content(value: Any) -> None:
    assert await content_of(value) == (Text(text="May"), PICTURE)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "tool_result", "tool_use_id": "c", "content": "too dark", "is_error": True},
        {"content": [{"type": "text", "text": "too dark"}], "isError": True},
        CallToolResult.model_validate({"content": [{"type": "text", "text": "too dark"}], "isError": True}),
    ],
    ids=["Anthropic", "MCP", "MCP's object"],
)
async def test_an_error_of_an_api_s_tool_result_is_a_failure_of_the_tool(value: Any) -> None:
    result = await result_with(value)
    assert (result.status, result.failure_class, result.error) == ("error", "tool_declared", "too dark")


async def test_a_tool_that_passes_on_a_result_of_mcp_may_say_so_in_its_annotation() -> None:
    @tool(effect="none")
    async def look() -> CallToolResult:
        """Look."""
        return CallToolResult.model_validate({"content": [MCP], "structuredContent": {"month": "May"}})

    async with Engine([look]) as engine:
        result = await said(engine, call("look"))
    assert result.content == (PICTURE,)
    assert isinstance(result.structured, dict)
    assert result.structured["content"] == [{**MCP, "data": "[70 bytes]", "annotations": None, "_meta": None}]
    assert result.structured["structuredContent"] == {"month": "May"}


async def test_a_tool_class_may_return_a_result_of_mcp() -> None:
    class Look(Tool):
        name = "look"
        description = "Look."
        parameters = {"type": "object", "properties": {}}
        category = "safe_chain"
        requires_actor = False

        async def execute(self, actor: str, **params: Any) -> dict[str, Any]:
            return {"content": [MCP], "isError": False}

    async with Engine([Look]) as engine:
        assert (await said(engine, call("look"))).content == (PICTURE,)


async def test_collections_of_python_are_lists() -> None:
    for value in (range(1, 3), deque([1, 2]), {1: 0, 2: 0}.keys()):
        assert (await result_with(value)).structured == [1, 2]


@dataclass
class Page:
    title: str
    scan: object


class Named(NamedTuple):
    scan: Image


class Model(BaseModel):
    scan: bytes


class Url(BaseModel):
    scan: str


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Page("May", PICTURE), {"title": "May", "scan": {**MCP, "data": "[70 bytes]"}}),
        (Page("May", base64.b64decode(PNG)), {"title": "May", "scan": "data:image/png;base64,[70 bytes]"}),
        ({"page": Page("May", PICTURE)}, {"page": {"title": "May", "scan": {**MCP, "data": "[70 bytes]"}}}),
        (OrderedDict(scan=PICTURE), {"scan": {**MCP, "data": "[70 bytes]"}}),
        (Model(scan=base64.b64decode(PNG)), {"scan": "data:image/png;base64,[70 bytes]"}),
        ([Url(scan=URL)], [{"scan": "data:image/png;base64,[70 bytes]"}]),
        (
            Page("May", [PICTURE, Page("June", None)]),
            {"title": "May", "scan": [{**MCP, "data": "[70 bytes]"}, {"title": "June", "scan": None}]},
        ),
    ],
)
async def test_an_image_in_an_object_follows_its_data(value: Any, data: Any, thread: bool) -> None:
    text, picture = await content_of(value, thread=thread)
    assert (json.loads(text.text), picture) == (data, PICTURE)


async def test_an_image_of_the_tool_beside_one_in_an_object_is_shown_once() -> None:
    text, first, second = await content_of({"cover": PICTURE, "page": Page("May", PICTURE)})
    assert (PNG in text.text, first, second) == (False, PICTURE, PICTURE)
    assert await content_of(Named(PICTURE)) == (PICTURE,)


async def test_bytes_of_a_model_that_are_no_text_are_base64() -> None:
    assert (await result_with(Model(scan=b"\xff\x00"))).structured == {"scan": "/wA="}


LEAVES = st.sampled_from(
    [
        None,
        7,
        "May",
        URL,
        MCP,
        ANTHROPIC,
        PICTURE,
        {"type": "text", "text": "May"},
        {"type": "other"},
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
    ]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["type", "content", "a"]), inner, max_size=3),
        st.builds(Page, st.just("May"), inner),
        st.builds(lambda items: {"type": "tool_result", "content": items}, st.lists(inner, max_size=3)),
        st.builds(lambda items, failed: {"content": items, "isError": failed}, st.lists(inner, max_size=3), st.booleans()),
    ),
    max_leaves=10,
)


def images_in(value: Any) -> int:
    if isinstance(value, Page):
        return images_in(value.scan)
    if isinstance(value, list):
        return sum(map(images_in, value))
    if isinstance(value, dict) and value not in (MCP, ANTHROPIC) and "inlineData" not in value:
        return sum(map(images_in, value.values()))
    return int(isinstance(value, (dict, Image)) or value == URL)


@given(VALUES)
def test_each_image_of_any_value_is_shown_once_and_never_as_text(value: Any) -> None:
    result = asyncio.run(result_with(value))
    assert sum(isinstance(part, Image) for part in result.content) == images_in(value)
    assert PNG not in result.text
    assert PNG not in json.dumps(result.structured)
