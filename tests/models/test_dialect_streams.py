"""Calls in text that arrives in pieces: same result as for the whole text, early output, no completion of partial calls, bounded work."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.models.dialects import DIALECTS, FoundCall, ParsedPart, ParsedText, TextPart, TextReader, collect_parts, read_text
from tests.models.dialect_texts import EXAMPLES, NO_CALLS, TOOLS, calls_in


@pytest.mark.parametrize("example", EXAMPLES, ids=list(DIALECTS))
def test_a_truncated_call_is_never_completed(example: str) -> None:
    """For every prefix of a call: no call, or the whole call, never a part of its arguments."""
    for end in range(len(example)):
        for call in read_text(example[:end], TOOLS, partial=True).calls:
            assert json.loads(call.arguments) == {"city": "Paris"}


def test_a_missing_closing_marker_is_accepted_only_in_a_complete_message() -> None:
    """Only the end of the message shows that a call without its last tag is complete."""
    text = "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n"
    (call,) = read_text(text, TOOLS).calls
    assert call.closed == "finished"
    assert read_text(text, TOOLS, partial=True) == ParsedText(calls=(), content=text, reasoning="")


def test_a_call_is_yielded_as_soon_as_it_is_complete() -> None:
    """A call in a list is yielded before the list ends."""
    reader = TextReader(TOOLS)
    parts = reader.feed('[{"name": "now", "arguments": {}}, {"name": "search", "arg')
    assert [part.name for part in parts if isinstance(part, FoundCall)] == ["now"]


@pytest.mark.parametrize(
    "text", ["a < b", "{x} y", "[see] y", "<b>bold", "Action speaks", "`x` y", "a <tool y", "[TOOL y", '{"author": "x", ', "call: y"]
)
def test_text_is_released_as_soon_as_it_cannot_be_a_call(text: str) -> None:
    """No text is held back unless a marker or a call can begin with it."""
    reader = TextReader(TOOLS)
    assert collect_parts(part for letter in text for part in reader.feed(letter)).content == text


PIECES = [
    *EXAMPLES,
    *NO_CALLS.values(),
    *(piece for example in EXAMPLES for piece in (example[: len(example) // 2], example[len(example) // 2 :])),
    *"{[<`\"'\n .:,",
    "<think>",
    "</think>",
    "```",
    "Final Answer: ",
    "\nObservation: ",
    "\nAction: [",
    "plain words",
    "日本 🎉",
]

MUSE = (
    'to=search<|message|><atem:function_calls><atem:invoke name="search"><atem:parameter name="query">x</atem:parameter>'
    "</atem:invoke></atem:function_calls><|eot|>"
)

TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=8).map("".join)


def read_in_pieces(text: str, sizes: list[int], *, cut: bool) -> ParsedText:
    reader, parts, start = TextReader(TOOLS), list[ParsedPart](), 0
    for size in [*sizes, len(text)]:
        parts += reader.feed(text[start : start + size])
        start += size
    return collect_parts([*parts, *reader.close(cut=cut)])


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 12), max_size=60), st.booleans())
def test_the_result_does_not_depend_on_how_the_stream_is_split(text: str, sizes: list[int], cut: bool) -> None:
    """The calls, the content and the reasoning are the same however the text is split."""
    whole = read_text(text, TOOLS, partial=cut)
    assert read_in_pieces(text, sizes, cut=cut) == whole
    assert read_in_pieces(text, [1] * len(text), cut=cut) == whole


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_text_without_markers_is_returned_unchanged(text: str) -> None:
    if not any(mark in text for mark in "<[{`>✿◁") and ":" not in text:
        assert read_text(text, TOOLS) == ParsedText(calls=(), content=text, reasoning="")


HOSTILE = [
    "{",
    "<",
    "[",
    "\n{",
    "\n[",
    '{"name": ',
    "<tool_call>",
    "\n```",
    "\n[search(",
    "[TOOL_CALLS]a[ARGS]{",
    '<tool_call>{"name": "',
    "<tool_call><function=a><parameter=b>",
    "<|tool_call>call:a{b:[",
    ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="a">',
    '\n{"name": "search", "arguments": ',
    "<tool_call>a<arg_key>b</arg_key><arg_value>",
    "<tool_call><function=a><parameter=b>x</function> y",
    "</tool_call> <tool_call>a<arg_key>b</arg_key><arg_value>",
    "search(query=",
    'search\n{"',
    "\nAction: search[",
    "<|python_tag|>",
    "[TOOL_CALLS]a[ARGS]{} x",
    '\n[search(query="x")] y',
    '[search(query="x")] y ',
    "<function=a>{} x",
    "to=search<|message|>{} x",
    "commentary to=functions.search json{} y\n",
    "<|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>{} x",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_parsing_work_is_linear_in_the_length(piece: str) -> None:
    """Work is counted in characters inspected: an opening that never ends costs a bounded number of inspections per character."""
    size = 20_000
    text = (piece * (size // len(piece) + 1))[:size]
    for step in (size, 31):
        reader = TextReader(TOOLS)
        for start in range(0, size, step):
            reader.feed(text[start : start + step])
        reader.close()
        assert reader.work < 64 * size + 2_000_000


@pytest.mark.parametrize("opener", ['<tool_call>{"name": "search", "arguments": ', "[search(query=", "<|tool_call>call:search{query:"])
def test_deeply_nested_arguments_make_no_call(opener: str) -> None:
    """A hundred thousand brackets cause neither a recursion error nor a call."""
    for bracket in ("[", '{"a":', "("):
        text = opener + bracket * 100_000
        assert read_text(text, TOOLS) == ParsedText(calls=(), content=text, reasoning="")


def test_a_call_that_exceeds_the_size_limit_is_text() -> None:
    """The text that may become a call is held in a buffer with a limit."""
    text = f'<tool_call>{{"name": "search", "arguments": {{"query": "{"x" * 1_100_000}"}}}}</tool_call>'
    assert read_text(text, TOOLS) == ParsedText(calls=(), content=text, reasoning="")
    reader = TextReader(TOOLS)
    held = 0
    for start in range(0, len(text), 10_000):
        held += len(text[start : start + 10_000]) - sum(
            len(part.text) for part in reader.feed(text[start : start + 10_000]) if isinstance(part, TextPart)
        )
        assert held <= 1_100_000


@pytest.mark.parametrize(
    "piece",
    ["\n[", '<tool_call>{"name": "search", "arguments": [' + "{}," * 20_000, "</tool_call> <tool_call>a<arg_key>b</arg_key><arg_value>"],
)
def test_a_large_piece_is_parsed_in_steps_of_bounded_work(piece: str) -> None:
    """The event loop runs other tasks between the steps; the result is the same."""
    text, reader = (piece * (60_000 // len(piece) + 1))[:60_000], TextReader(TOOLS)
    parts: list[ParsedPart] = []
    for steps in (reader.feed_in_steps(text), reader.close_in_steps()):
        before = reader.work
        for step in steps:
            assert reader.work - before < 32_768 + 2 * len(text)
            before = reader.work
            parts += step
    assert collect_parts(parts) == read_text(text, TOOLS)


@pytest.mark.parametrize("text", [*EXAMPLES, MUSE], ids=[*DIALECTS, "a recipient"])
def test_a_call_of_the_expected_dialect_does_not_depend_on_the_pieces(text: str) -> None:
    """The dialects are tried in another order if one is expected: a piece may end within a marker that begins like another one."""
    for dialect in DIALECTS:
        whole = read_text(text, TOOLS, dialect=dialect)
        for size in (1, 7):
            reader = TextReader(TOOLS, dialect=dialect)
            pieces = (text[start : start + size] for start in range(0, len(text), size))
            assert collect_parts([*(part for piece in pieces for part in reader.feed(piece)), *reader.close()]) == whole


@pytest.mark.parametrize("prefix", ["", "functions.", "default_api."])
def test_a_call_without_markers_and_with_a_namespace_does_not_depend_on_the_pieces(prefix: str) -> None:
    """The namespace alone is no name, so the reader waits for the rest of it."""
    text = f'{prefix}search(query="x")'
    for size in range(1, len(text) + 1):
        reader = TextReader(TOOLS)
        pieces = (text[start : start + size] for start in range(0, len(text), size))
        parts = [*(part for piece in pieces for part in reader.feed(piece)), *reader.close()]
        assert calls_in(collect_parts(parts)) == [("search", {"query": "x"})]
