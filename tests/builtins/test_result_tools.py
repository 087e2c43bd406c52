"""Tests of the tools that read and search results too large to show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import DirectoryBlobs, Engine
from callgate.builtins import result_tools
from tests.builtins.fakes import Box

DATA = {"items": [{"name": f"n{number}", "é/~": None} for number in range(500)], "": 1}


@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=3_000), limit=st.integers(1, 700))
def test_joined_pages_equal_the_whole_result(text: str, limit: int) -> None:
    """A model can read a 1 MB result in pages without loss."""
    blobs = Engine([]).blobs
    read = Box(result_tools(blobs))
    digest = blobs.put(text.encode())
    whole = ""
    offset: int | None = 0
    while offset is not None:
        page = read("read_result", digest=digest, offset=offset, limit=limit)
        whole, offset = whole + page["text"], page["next_offset"]
    assert whole == text


@pytest.fixture
def blobs(tmp_path: Path) -> DirectoryBlobs:
    return DirectoryBlobs(tmp_path)


def test_a_pointer_reads_one_part_of_a_json_result(blobs: DirectoryBlobs) -> None:
    read = Box(result_tools(blobs))
    digest = blobs.put(json.dumps(DATA).encode())
    assert read("read_result", digest=digest, pointer="/items/3/name")["text"] == '"n3"'
    assert read("read_result", digest=digest, pointer="/items/3/é~1~0")["text"] == "null"
    assert read("read_result", digest=digest, pointer="/")["text"] == "1"
    whole = read("read_result", digest=digest, pointer="")
    assert (whole["kind"], whole["keys"], whole["next_offset"]) == ("object", ["items", ""], 8000)
    assert read("read_result", digest=digest, pointer="/items")["length"] == 500


@pytest.mark.parametrize("pointer", ["/items/500", "/items/x", "/absent", "items", "/items/-1", "/items/3/name/0"])
def test_a_pointer_to_nothing_is_refused(blobs: DirectoryBlobs, pointer: str) -> None:
    result = Box(result_tools(blobs))("read_result", digest=blobs.put(json.dumps(DATA).encode()), pointer=pointer)
    assert result["success"] is False


def test_a_pointer_into_a_text_result_is_refused(blobs: DirectoryBlobs) -> None:
    result = Box(result_tools(blobs))("read_result", digest=blobs.put(b"plain"), pointer="/a")
    assert "not JSON" in result["error"]


def test_a_match_has_its_line_and_an_offset_for_read_result(blobs: DirectoryBlobs) -> None:
    text = "alpha\n" * 3000 + "the needle é here\n" + "omega\n" * 3000
    tools, digest = Box(result_tools(blobs)), blobs.put(text.encode())
    found = tools("search_result", digest=digest, query="needle", context_chars=4)
    assert found["matches"] == [{"offset": text.index("needle"), "line": 3001, "text": "…the needle é h…"}]
    assert tools("read_result", digest=digest, offset=found["matches"][0]["offset"], limit=6)["text"] == "needle"
    assert tools("search_result", digest=digest, query="NEEDLE", ignore_case=True)["matches"]
    assert tools("search_result", digest=digest, query=r"need\w+", regex=True)["matches"][0]["line"] == 3001


def test_a_match_has_its_offset_also_behind_a_character_whose_lower_case_is_longer(blobs: DirectoryBlobs) -> None:
    text = "\u0130stanbul, then Ankara"
    found = Box(result_tools(blobs))("search_result", digest=blobs.put(text.encode()), query="ANKARA", ignore_case=True)
    assert [match["offset"] for match in found["matches"]] == [text.index("Ankara")]


def test_a_search_is_bounded_and_no_match_is_a_success(blobs: DirectoryBlobs) -> None:
    """E13: an empty result is a success."""
    tools, digest = Box(result_tools(blobs)), blobs.put(b"x" * 100_000)
    found = tools("search_result", digest=digest, query="x", max_matches=3)
    assert (len(found["matches"]), found["truncated"]) == (3, True)
    assert tools("search_result", digest=digest, query="y") == {"digest": digest, "matches": [], "truncated": False}


@pytest.mark.parametrize("digest", ["0" * 64, "../../etc/passwd", "", "not a hash"])
def test_an_unknown_digest_is_refused_with_the_next_step(blobs: DirectoryBlobs, digest: str) -> None:
    result = Box(result_tools(blobs))("read_result", digest=digest)
    assert result["success"] is False
    assert "call the tool again" in result["error"]
