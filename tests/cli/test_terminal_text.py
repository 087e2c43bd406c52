"""Text from outside cannot control the terminal."""

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
        ("blank\u115f\u1160\u2800\u3164\uffa0", "blank\\u115f\\u1160\\u2800\\u3164\\uffa0"),
        ("half\ud83d", "half\\ud83d"),
    ],
)
def test_control_and_invisible_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "plain", "two\nlines\tand a tab", "Grüße, 日本, العربية, 🙂", "a\u0301 combined", "no\u00a0break"])
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert printable(text) == text


@given(st.text())
def test_printable_json_has_the_same_value_and_no_control_characters(text: str) -> None:
    line = json.dumps(text, ensure_ascii=False)
    shown = printable_json(line)
    assert json.loads(shown) == text
    assert printable(shown) == shown


def test_crlf_is_converted_to_a_newline() -> None:
    assert printable("a\r\nb") == "a\nb"


@given(st.text(st.characters()))
def test_printable_text_contains_no_control_or_format_character(text: str) -> None:
    left = {unicodedata.category(char) for char in printable(text) if char not in "\n\t"}
    assert left.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


@given(st.text(st.characters(), max_size=400), st.integers(5, 50))
def test_one_line_returns_a_single_line_of_bounded_length(text: str, limit: int) -> None:
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert not set(shown) & set("\n\t\r")
