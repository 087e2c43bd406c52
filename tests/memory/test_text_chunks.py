"""Tests of splitting a text into chunks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callgate.memory.text_chunks import MOST_CHARS, chunks

LINES = st.sampled_from(["", "\n", "# Title\n", "def f():\n", "    x = 1\n", "word " * 120 + "\n", "y" * 4_500, "\r\n", "\u2028"])


@given(st.lists(LINES, max_size=60).map("".join))
def test_every_non_blank_character_is_in_one_chunk_in_order(text: str) -> None:
    """Only white space is left out, nothing is repeated, no chunk is too large, and lines are counted as editors count them."""
    at = 0
    for chunk in chunks(text):
        begins = text.find(chunk.text, at)
        assert not text[at:begins].strip()
        assert chunk.line == text.count("\n", 0, begins) + 1
        assert 0 < len(chunk.text) <= MOST_CHARS
        at = begins + len(chunk.text)
    assert not text[at:].strip()


def test_a_chunk_starts_at_a_heading_or_at_an_unindented_line() -> None:
    """Lines that belong together stay in one chunk."""
    body = "    line of a body\n" * 70
    text = f"def one():\n{body}\n\ndef two():\n{body}\n\ndef three():\n{body}"
    assert [chunk.text.split("(")[0] for chunk in chunks(text)] == ["def one", "def two", "def three"]
    prose = "".join(f"# Part {number}\n\n{'words and words. ' * 40}\n\n{'more. ' * 60}\n\n" for number in range(4))
    assert all(chunk.text.startswith("# Part") for chunk in chunks(prose))
