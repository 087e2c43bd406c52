"""The end of a JSON object that arrives in pieces."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from callgate.models.wire.json_extent import JsonExtent

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab{}[]"\\ü\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='k"\\}'), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(alphabet='k"\\{'), VALUES), st.lists(st.integers(0, 500)))
def test_an_object_ends_exactly_at_its_closing_brace(value: dict[str, object], cuts: list[int]) -> None:
    """An earlier end would start a partial call, a later one would delay it."""
    text = json.dumps(value, ensure_ascii=False)
    places = sorted({0, len(text) - 1, len(text), *(cut % len(text) for cut in cuts)})
    extent = JsonExtent()
    ends = [extent.feed(text[a:b]) for a, b in pairwise(places)]
    assert ends == [False] * (len(ends) - 1) + [True]


def test_text_that_is_not_a_json_object_never_ends() -> None:
    assert not any(JsonExtent().feed(text) for text in ("[{}]", '"{}"', "null", "", "   ", "x{}", "{} and more"))
