"""Content blocks of providers' APIs and of MCP, as tools that were written for an SDK return them, reach the model as what they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate import Engine, tool
from callgate.calls import Audio, Image, Resource, Text
from tests.engine_calls import call, said

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
URL = f"data:image/png;base64,{PNG}"
PDF = "JVBERi0xLjQKJSVFT0Y="
FILE = {"mimeType": "application/pdf", "blob": PDF}
ANTHROPIC = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


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
        [ANTHROPIC, {"order": "A7"}],
        [ANTHROPIC, 7],
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

    shown = {"type": "image", "mimeType": "image/png", "bytes": 70}
    async with Engine([chart, picture]) as engine:
        several, single = await said(engine, call("chart")), await said(engine, call("picture"))
    assert (several.success, several.structured) == (True, [{"type": "text", "text": "May"}, shown])
    assert several.content == (Text(text="May"), Image(data=PNG, mime_type="image/png"))
    assert (single.success, single.structured) == (True, shown)
