"""What comes from outside cannot speak to the terminal."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate._terminal_text import one_line, printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("over\rwritten", "over\\rwritten"),
        ("back\x08space", "back\\x08space"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("\u2066isolated\u2069", "\\u2066isolated\\u2069"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("two\u2028lines\u2029", "two\\u2028lines\\u2029"),
        ("hidden\U000e0068\U000e0069", "hidden\\U000e0068\\U000e0069"),
        ("selector\U000e0100", "selector\\U000e0100"),
        ("half\ud83d", "half\\ud83d"),
    ],
)
def test_what_a_terminal_would_obey_or_hide_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "plain", "two\nlines\tand a tab", "Grüße, 日本, العربية, 🙂", "a\u0301 combined", "no\u00a0break"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(st.text())
def test_a_line_of_json_says_the_same_and_nothing_to_the_terminal(text: str) -> None:
    line = json.dumps(text, ensure_ascii=False)
    shown = printable_json(line)
    assert json.loads(shown) == text
    assert printable(shown) == shown


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert printable("a\r\nb") == "a\nb"


@given(st.text(st.characters()))
def test_no_control_or_format_character_is_ever_left(text: str) -> None:
    left = {unicodedata.category(char) for char in printable(text) if char not in "\n\t"}
    assert left.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


@given(st.text(st.characters(), max_size=400), st.integers(5, 50))
def test_one_line_is_one_line_and_bounded(text: str, limit: int) -> None:
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert not set(shown) & set("\n\t\r")
