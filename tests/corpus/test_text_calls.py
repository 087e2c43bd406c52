"""Calls in plain text, as the test suites of other parsers expect them and as real models wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.corpus.adapter import parse_text
from tests.corpus.input_files import found_rows, same

ANSWERS = frozenset({"plain", "react-final", "json-answer"})
"""Formats of texts that contain no call, although they may look like one."""
LEAST = {"text/text_cases.jsonl": (0.98, 0.9), "text/real_text.jsonl": (1.0, 1.0)}
"""The minimum share of calls, and of contents, that match. The suites contradict each other in a few cases, and some complete
truncated texts.
"""


def loosely(one: Any, other: Any) -> bool:
    """Return whether two values are equal, also after reading a text as JSON: without a schema, the type of a value in a tag is unknown."""
    if same(one, other):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(loosely(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(loosely, one, other))
    return any(
        isinstance(text, str) and not isinstance(value, str) and reads_as(text, value) for text, value in ((one, other), (other, one))
    )


def reads_as(text: str, value: Any) -> bool:
    try:
        return same(json.loads(text), value) or str(value) == text
    except ValueError:
        return str(value) == text


def has(got: Any, part: dict[str, Any], equal: Callable[[Any, Any], bool]) -> bool:
    """Return whether `got` has these members; members of a list are named by their index."""
    if isinstance(got, list):
        got = {str(index): value for index, value in enumerate(got)}
    return isinstance(got, dict) and all(
        key in got and (equal(got[key], value) or (isinstance(value, dict) and bool(value) and has(got[key], value, equal)))
        for key, value in part.items()
    )


def calls_are(expected: dict[str, Any], calls: list[dict[str, Any]], equal: Callable[[Any, Any], bool]) -> bool:
    wanted = expected.get("calls", [])
    if len(calls) != expected.get("n_calls", len(calls)) or len(calls) < max(expected.get("min_calls", 0), len(wanted)):
        return False
    return all(
        one.get("name", call["name"]) == call["name"]
        and ("arguments" not in one or equal(call["arguments"], one["arguments"]))
        and has(call["arguments"], one.get("arguments_part", {}), equal)
        for one, call in zip(wanted, calls, strict=False)
    )


def content_is(expected: dict[str, Any], content: str) -> bool:
    return (
        ("content" not in expected or content.strip() == (expected["content"] or "").strip())
        and not any(text in content for text in expected.get("content_lacks", []))
        and all(text in content for text in expected.get("content_contains", []))
    )


def makes_calls(row: dict[str, Any]) -> bool:
    expected = row["expected"]
    return bool(expected.get("calls")) or expected.get("n_calls", expected.get("min_calls", 0)) > 0


@pytest.mark.parametrize("hinted", [False, True], ids=["auto", "hinted"])
@pytest.mark.parametrize("name", LEAST)
def test_calls_in_text_are_found_and_no_answer_becomes_a_call(name: str, hinted: bool) -> None:
    """For every family: the share of correct calls, no call made of an answer, and no exception."""
    calls: list[bool] = []
    contents: list[bool] = []
    for row in found_rows(name):
        got = parse_text(row["text"], row["tools"], row["format"] if hinted else None, row.get("partial", False))
        if row.get("partial") or not (makes_calls(row) or row["format"] in ANSWERS):
            continue
        right = calls_are(row["expected"], got["calls"], same if row["tools"] else loosely)
        assert right or makes_calls(row), row["text"]
        if makes_calls(row):
            calls.append(right)
        if right:
            contents.append(content_is(row["expected"], got["content"]))
    least_calls, least_contents = LEAST[name]
    assert sum(calls) >= least_calls * len(calls)
    assert sum(contents) >= least_contents * len(contents)
