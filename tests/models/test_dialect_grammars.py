"""Calls in plain text: what the grammars of model families allow beyond their usual form, and mistakes that their models make."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate.models.dialects import TextReader, collect_parts, read_text
from tests.models.dialect_texts import TOOLS, calls_in

NAMESPACE = "]<]minimax[>["
SCHEMAS: dict[str, Any] = TOOLS | {
    "note": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}},
            "extra": {"type": "object"},
            "either": {"type": ["string", "integer"]},
            "where": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"$ref": "#/$defs/place"}]},
        },
        "$defs": {"place": {"type": "object", "properties": {"zip": {"type": "string"}}}},
    }
}


def minimax(*members: str) -> str:
    """Return a call of `note` as MiniMax M3 writes it; `members` are given without the token before each tag."""
    inside = "".join(members).replace("<", f"{NAMESPACE}<")
    return f'{NAMESPACE}<tool_call>\n{NAMESPACE}<invoke name="note">{inside}{NAMESPACE}</invoke>\n{NAMESPACE}</tool_call>'


def kimi(arguments: str, end: str = "<|tool_call_end|>") -> str:
    return f"<|tool_call_begin|>functions.note:0<|tool_call_argument_begin|>{arguments}{end}<|tool_calls_section_end|>"


def dsml(parameter: str) -> str:
    inside = f"<｜DSML｜parameter {parameter}</｜DSML｜parameter>"
    return f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="note">\n{inside}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'


NOTES: dict[str, tuple[str, dict[str, Any]]] = {
    "a list, whatever its tags are called": (minimax("<labels><label>a</label><other>5</other></labels>"), {"labels": ["a", "5"]}),
    "an object with a member called item": (minimax("<extra><item>a</item></extra>"), {"extra": {"item": "a"}}),
    "empty values": (minimax("<labels></labels><extra></extra><text></text>"), {"labels": [], "extra": {}, "text": ""}),
    "either a list or an object": (minimax("<where><zip>0123</zip></where>"), {"where": {"zip": "0123"}}),
    "either an object or a list": (minimax("<where><item>1</item></where>"), {"where": [1]}),
    "text beside tags": (minimax("<extra>so<a>1</a></extra>"), {"extra": {"a": 1, "$text": "so"}}),
    "a name in other quotes": (minimax("<text>x</text>").replace('"note"', "'note'"), {"text": "x"}),
    "space behind the token": (minimax("<text>x</text>").replace("[<invoke", "[\n<invoke"), {"text": "x"}),
    "text that says that it is text": (dsml('name="either" string="true">5'), {"either": "5"}),
    "all arguments as one, called input": (dsml('name="input" string="false">{"text": "x"}'), {"text": "x"}),
    "all arguments as text": (dsml('name="arguments" string="true">{"text": "x"}'), {"text": "x"}),
    "white space in tags": (
        "<tool_call>\n<function = note>\n<parameter = text>\nx\n</parameter >\n</function >\n</tool_call>",
        {"text": "x"},
    ),
    "line breaks in tags": ('<minimax:tool_call><invoke\nname="note"><parameter\nname="text">x</parameter></invoke>', {"text": "x"}),
    "a tag that is no parameter of the tool": (
        "<tool_call>\n<function=note>\n<parameter=text>\nas <parameter=x> is\n</parameter>\n</function>\n</tool_call>",
        {"text": "as <parameter=x> is"},
    ),
    "a whole call in a value": (
        (
            "<tool_call>\n<function=note>\n<parameter=text>\n<tool_call>\n<function=now>\n<parameter=text>\nx\n</parameter>\n"
            "</function>\n</tool_call>\n</parameter>\n</function>\n</tool_call>"
        ),
        {"text": "<tool_call>\n<function=now>\n<parameter=text>\nx\n</parameter>\n</function>\n</tool_call>"},
    ),
    "two whole calls in a value": (
        (
            "<tool_call>note<arg_key>text</arg_key><arg_value><tool_call>note<arg_key>text</arg_key><arg_value>x</arg_value></tool_call>"
            "<tool_call>now</tool_call></arg_value></tool_call>"
        ),
        {"text": "<tool_call>note<arg_key>text</arg_key><arg_value>x</arg_value></tool_call><tool_call>now</tool_call>"},
    ),
    "a key that is no parameter of the tool": (
        "<tool_call>note<arg_key>text</arg_key><arg_value>as <arg_key>x</arg_key> or <arg_key> is</arg_value></tool_call>",
        {"text": "as <arg_key>x</arg_key> or <arg_key> is"},
    ),
    "the name on a line of its own": (
        '<｜tool▁call▁begin｜>\nnote\n<｜tool▁sep｜>\n{"text": "x"}\n<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        {"text": "x"},
    ),
    "an empty fence": ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n```json\n\n```<｜tool▁call▁end｜>", {}),
    "null for no arguments": ("<｜tool▁call▁begin｜>note<｜tool▁sep｜>null<｜tool▁call▁end｜>", {}),
    "null for no arguments, as well": ("[TOOL_CALLS]note[ARGS]null", {}),
    "an end in a string": (kimi('{"text": "<|tool_call_end|> <b>"}'), {"text": "<|tool_call_end|> <b>"}),
    "escaped names": (
        (
            '<|open|>call tool="note" index="1"<|sep|><|open|>argument key="a&amp;&quot;b" type="string"<|sep|>x&amp;y'
            "<|close|>argument<|sep|><|close|>call<|sep|>"
        ),
        {'a&"b': "x&amp;y"},
    ),
    "a call that only the message ended": (
        '<|open|>call tool="note" index="1"<|sep|><|open|>argument key="text" type="string"<|sep|>x<|close|>argument<|sep|>',
        {"text": "x"},
    ),
    "spaces between tokens": (
        (
            '<|open|> tools <|sep|><|open|> call tool="note" index="1" <|sep|><|open|> argument key="text" type="string" <|sep|>x'
            "<|close|> argument <|sep|><|close|> call <|sep|><|close|> tools <|sep|>"
        ),
        {"text": "x"},
    ),
    "ends that come twice": (
        "<tool_call>\n<function=note>\n<parameter=text>\nx\n</parameter>\n</function>\n</tool_call>\n</function>\n</tool_call>",
        {"text": "x"},
    ),
    "a tool as an object": ('<tool_call>{"tool": {"name": "note", "arguments": {"text": "x"}}}</tool_call>', {"text": "x"}),
    "a line break that was escaped": ("<tool_call>note<arg_key>text</arg_key>\\n<arg_value>x</arg_value></tool_call>", {"text": "x"}),
    "parameters in a tag of their own": (
        '<function name="note"><arguments><param name="text">x</param></arguments></function>',
        {"text": "x"},
    ),
    "spaces of a tokenizer": ('<functionĠname="note">Ċ<paramĠname="text">aĠbĊc</param>Ċ</function>', {"text": "a b\nc"}),
}


@pytest.mark.parametrize(("text", "meant"), NOTES.values(), ids=NOTES.keys())
def test_a_call_is_read_by_the_rules_of_its_model_family(text: str, meant: dict[str, Any]) -> None:
    """The forms come from chat templates and guides of the families, and from deviations of their models."""
    reading = read_text(text, SCHEMAS)
    assert calls_in(reading) == [("note", meant)]
    assert reading.content == ""
    reader = TextReader(SCHEMAS)
    assert collect_parts([*(part for letter in text for part in reader.feed(letter)), *reader.close()]).calls == reading.calls


@pytest.mark.parametrize(
    ("kind", "written", "meant"),
    [
        ("int", "5", 5),
        ("float", "1.5", 1.5),
        ("INTEGER", "5", 5),
        ("bool", "True", True),
        ("str", "5", "5"),
        ("list", "('a', 1)", ["a", 1]),
        ("dict", '{"a": 1}', {"a": 1}),
        ("object", '"{\\"a\\": 1}"', {"a": 1}),
        ("string", '"{\\"a\\": 1}"', '"{\\"a\\": 1}"'),
        (["int", "none"], "null", None),
        ("date", "5", "5"),
    ],
)
def test_a_schema_may_use_programming_language_type_names(kind: str | list[str], written: str, meant: object) -> None:
    """Schemas of remote tools are written by hand. Values may be escaped once more, or be in Python syntax."""
    tools = {"note": {"type": "object", "properties": {"value": {"type": kind}}}}
    text = f"<tool_call>\n<function=note>\n<parameter=value>\n{written}\n</parameter>\n</function>\n</tool_call>"
    assert calls_in(read_text(text, tools)) == [("note", {"value": meant})]


@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS]search[ARGS]{"query": "x"}now[ARGS]{}',
        "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n<tool_call>now</tool_call>",
    ],
)
def test_a_missing_marker_between_two_calls_is_tolerated(text: str) -> None:
    """The marker of the arguments or of the next call shows that the previous call is complete."""
    reading = read_text(text, TOOLS)
    assert calls_in(reading) == [("search", {"query": "x"}), ("now", {})]
    assert reading.content == ""


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (kimi('{"text": "x"'), '{"text": "x"'),
        (kimi('{"text": ["x"}'), '{"text": ["x"}'),
        (kimi('{"text": "x"', ""), '{"text": "x"'),
        ('<｜tool▁call▁begin｜>note<｜tool▁sep｜>{"text": "x"<｜tool▁call▁end｜>', '{"text": "x"'),
        ('<｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n```json\n{"text": [}\n```<｜tool▁call▁end｜>', '{"text": [}'),
    ],
)
def test_a_complete_call_with_malformed_arguments_is_still_a_call(text: str, arguments: str) -> None:
    """Its end was read, so it was not truncated: the engine reports the error to the model, and the user sees no markers."""
    reading = read_text(text + kimi("{}"), SCHEMAS)
    assert [(call.name, call.arguments) for call in reading.calls] == [("note", arguments), ("note", "{}")]
    assert reading.content == ""


def test_a_call_list_repeated_after_its_end_marker_is_read_once() -> None:
    """LFM2 repeats the list with an end marker and without a start marker."""
    call = '[search(query="x")]<|tool_call_end|>'
    assert len(read_text(f"<|tool_call_start|>{call}{call}", TOOLS).calls) == 1
    assert read_text(f"<|tool_call_start|>{call}{call}\nI look.", TOOLS).content == "I look."
    assert len(read_text(f"<|tool_call_start|>{call}\n<|tool_call_start|>{call}", TOOLS).calls) == 2


def test_an_unmarked_tag_call_with_a_repeated_parameter_is_not_a_call() -> None:
    """MiniCPM 5: it is unclear which of the two values is meant."""
    text = '<function name="search"><param name="query">a</param><param name="query">b</param></function>'
    assert read_text(text, TOOLS).calls == ()


QUOTED = [
    "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</function>\n</tool_call>",
    '<minimax:tool_call><invoke name="search"><parameter name="query">x</parameter></invoke></minimax:tool_call>',
    "<tool_call>search<arg_key>query</arg_key><arg_value>x</arg_value></tool_call>",
    '<｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "x"}<｜tool▁call▁end｜>',
    '<|open|>call tool="now" index="1"<|sep|><|open|>argument key="a" type="string"<|sep|>x<|close|>argument<|sep|><|close|>call<|sep|>',
    minimax("<text>x</text>"),
    "<|tool_call_start|>[now()]<|tool_call_end|>",
]
FRAMES = [
    "<tool_call>\n<function=note>\n<parameter=text>\n{}\n</parameter>\n</function>\n</tool_call>",
    '<minimax:tool_call>\n<invoke name="note">\n<parameter name="text">{}</parameter>\n</invoke>\n</minimax:tool_call>',
    "<tool_call>note<arg_key>text</arg_key><arg_value>{}</arg_value></tool_call>",
    dsml('name="text" string="true">{}'),
    '<|open|>call tool="note"<|sep|><|open|>argument key="text" type="string"<|sep|>{}<|close|>argument<|sep|><|close|>call<|sep|>',
    minimax("<text>{}</text>"),
]


@pytest.mark.parametrize("frame", FRAMES, ids=["qwen-xml", "minimax-m2", "glm", "deepseek-dsml", "kimi-k3", "minimax-m3"])
def test_a_tag_value_may_quote_calls_of_any_family(frame: str) -> None:
    """The value is kept whole, and no call that it quotes is run, whether in its own tags or those of another family."""
    for quoted in QUOTED:
        text = f"As in\n{quoted}\nand so on."
        whole = frame.replace("{}", text)
        reading = read_text(whole, SCHEMAS)
        assert (calls_in(reading), reading.content) == ([("note", {"text": text})], "")
        for end in range(whole.index(text), len(whole)):
            assert read_text(whole[:end], SCHEMAS, partial=True).calls in ((), reading.calls)


def test_a_json_string_may_quote_calls_of_any_family() -> None:
    """DeepSeek and Kimi K2 start a call with similar markers, and only one of them has a separator after the name."""
    for quoted in QUOTED:
        written = json.dumps({"text": quoted}, ensure_ascii=False)
        for text in (kimi(written), f"[TOOL_CALLS]note[ARGS]{written}"):
            assert calls_in(read_text(text, SCHEMAS)) == [("note", {"text": quoted})]


INNER = {
    "qwen-xml": (
        "<tool_call>\n<function=search>\n<parameter=query>\nThe manual says:\n{}\n",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    ),
    "glm": ("<tool_call>search<arg_key>query</arg_key><arg_value>The manual says:\n{}\n", "<tool_call>now</tool_call>"),
    "minimax-m2": (
        '<minimax:tool_call><invoke name="search"><parameter name="query">\n{}\n',
        '<minimax:tool_call><invoke name="now"></invoke></minimax:tool_call>',
    ),
    "deepseek-dsml": (
        (
            '<｜DSML｜tool_calls><｜DSML｜invoke name="now"></｜DSML｜invoke>'
            '<｜DSML｜invoke name="search"><｜DSML｜parameter name="query" string="true">\n{}\n'
        ),
        "<tool_call>now</tool_call>",
    ),
    "kimi-k3": ('<|open|>call tool="search" index="1"<|sep|><|open|>argument key="query" type="string"<|sep|>\n{}\n', "[now()]\n"),
    "lfm2": ('<|tool_call_start|>[search(query="""\n{}\n', "<tool_call>now</tool_call>"),
}


@pytest.mark.parametrize("hinted", [False, True], ids=["found", "hinted"])
@pytest.mark.parametrize("name", INNER)
def test_a_call_quoted_in_a_truncated_value_is_not_a_call(name: str, hinted: bool) -> None:
    """If a model writes a file about tools and reaches its token limit, calls in the file must not run."""
    frame, inner = INNER[name]
    reading = read_text(frame.format(inner), TOOLS, dialect=name if hinted else None, partial=True)
    assert [call.name for call in reading.calls] == (["now"] if name == "deepseek-dsml" else [])
    assert inner in reading.content
