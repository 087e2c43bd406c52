"""Tests of result content: it is the requested text itself, for example of a file, followed by the fields that are not in the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import DirectoryBlobs, Engine, Hook, Limits, MemoryJournal, Scope, UsageError, tool
from callgate.builtins import workspace_tools
from callgate.messages import openai_message
from tests.engine_calls import call, said

SOURCE = 'export const session = "ä";\n' * 20


async def read(folder: Path, path: str, limits: Limits | None = None, **arguments: Any) -> Any:
    async with Engine(workspace_tools(), limits=limits or Limits()) as engine:
        return await said(engine, call("read_file", id="call_xyz", path=path, **arguments), Scope(workspace=str(folder)))


async def test_a_read_file_result_has_the_text_mime_type_and_size_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "session.ts").write_text(SOURCE, encoding="utf-8")
    result = await read(tmp_path, "session.ts")
    assert (result.id, result.status, result.text) == ("call_xyz", "ok", SOURCE)
    assert [part.text for part in result.content] == [SOURCE]
    assert (result.metadata.bytes, result.metadata.truncated, result.metadata.mime) == (len(SOURCE.encode()), False, "text/typescript")
    assert openai_message(result)["content"] == SOURCE
    assert result.structured["path"] == "session.ts"


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("a.py", "text/x-python"),
        ("b.json", "application/json"),
        ("c.MD", "text/markdown"),
        ("Makefile", "text/plain"),
        ("d.odd", "text/plain"),
    ],
)
async def test_the_mime_type_of_a_file_depends_only_on_its_name(name: str, mime: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")
    result = await read(tmp_path, name)
    assert (result.text, result.metadata.mime) == ("{}", mime)


async def test_a_page_of_a_file_states_its_line_range_and_the_next_offset(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("".join(f"line {number}\n" for number in range(10)), encoding="utf-8")
    size = (tmp_path / "long.txt").stat().st_size
    first, last, behind = [await read(tmp_path, "long.txt", offset=offset, limit=4) for offset in (0, 8, 99)]
    assert first.content[0].text == "line 0\nline 1\nline 2\nline 3\n"
    assert first.content[1].text == "[Lines 1 to 4 of 10; continue with offset=4.]"
    assert last.text == "line 8\nline 9\n\n[Lines 9 to 10 of 10; this is the end.]"
    assert "the file has 10 lines" in behind.text
    assert [(one.metadata.bytes, one.metadata.truncated) for one in (first, last, behind)] == [(size, True)] * 3


async def test_an_empty_file_is_reported_as_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    result = await read(tmp_path, "empty")
    assert (result.status, result.content[0].text, result.content[1].text) == ("ok", "", "[The file is empty.]")
    assert (result.metadata.bytes, result.metadata.truncated) == (0, False)


async def test_a_text_above_the_content_limit_is_stored_as_a_blob_of_that_text(tmp_path: Path) -> None:
    """The blob stored under the hash is the text, not the JSON object that contains it."""
    text, blobs = "a line\n" * 1000, DirectoryBlobs(tmp_path)

    @tool(effect="none", content_key="page")
    async def look() -> dict[str, object]:
        """Look."""
        return {"page": text, "mime": "text/html", "note": "from a friend", "bytes": 5}

    async with Engine([look], blobs=blobs, journal=MemoryJournal(), limits=Limits(content_bytes=1000)) as engine:
        result = await said(engine, call("look"))
    assert result.metadata.blob is not None
    assert blobs.get(result.metadata.blob) == text.encode()
    assert (result.metadata.mime, result.metadata.bytes, result.metadata.truncated) == ("text/html", 5, True)
    assert result.text.startswith("a line\n")
    assert result.text.endswith("from a friend")


async def test_a_value_without_text_under_its_content_key_is_returned_whole() -> None:
    """The tool may return another type, or a hook may replace the value with text; nothing is lost."""

    @tool(effect="none", content_key="page")
    async def look(n: int) -> Any:
        """Look."""
        return [{"page": 5}, {"other": "x"}, ["page"], {"page": "x", "mime": 5, "bytes": -1, "truncated": "no", "note": []}][n]

    async with Engine([look]) as engine:
        texts = [(await said(engine, call("look", n=n))) for n in range(4)]
    assert [one.text for one in texts] == ['{"page":5}', '{"other":"x"}', '["page"]', "x"]
    assert (texts[3].metadata.mime, texts[3].metadata.bytes, texts[3].metadata.truncated) == ("text/plain", 1, False)

    hook = Hook(run=lambda call, result: "hidden", phase="after", kind="transform")
    async with Engine([look], hooks=[hook]) as engine:
        result = await said(engine, call("look", n=3))
    assert (result.text, result.metadata.mime, result.structured) == ("hidden", "text/plain", "hidden")


@pytest.mark.parametrize("key", ["", 5])
def test_an_invalid_content_key_is_refused(key: Any) -> None:
    @tool(effect="none", content_key=key)
    async def look() -> dict[str, object]:
        """Look."""
        return {}

    with pytest.raises(UsageError, match="content_key"):
        Engine([look])
