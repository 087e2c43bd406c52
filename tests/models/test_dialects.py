"""Calls in plain text: the form of each family, and common variations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate.models.dialects import DIALECTS, read_text
from tests.models.dialect_texts import TOOLS, calls_in


@pytest.mark.parametrize("hinted", [False, True], ids=["found", "hinted"])
@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_reads_its_example_and_leaves_no_markup(name: str, hinted: bool) -> None:
    """Each example is read without a hint and with one."""
    dialect = DIALECTS[name]
    if dialect.hint_only and not hinted:
        pytest.skip("only read by hint")
    reading = read_text(dialect.example, TOOLS, dialect=name if hinted else None)
    assert calls_in(reading) == [("get_weather", {"city": "Paris"})]
    assert reading.content in ("", "Let me look: ")
    assert reading.calls[0].source in dialect.example


TWO = [("get_weather", {"city": "Rome", "days": 3}), ("now", {})]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}</tool_call>\n<tool_call>{"name": "now"}</tool_call>',
        '<tool_call>{"arguments": "{\\"city\\": \\"Rome\\", \\"days\\": 3}", "name": "get_weather"}<tool_call>{"name": "now"}',
        (
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n"
            "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>"
        ),
        '<function=get_weather>{"city": "Rome", "days": 3}</function><function=now>{}</function>',
        (
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key><arg_value>3</arg_value>\n"
            "</tool_call>\n<tool_call>now</tool_call>"
        ),
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome", "days": 3}[TOOL_CALLS]now[ARGS]{}',
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "now", "arguments": {}}]',
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
            '{"city": "Rome", "days": 3}\n```<｜tool▁call▁end｜>\n'
            "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        (
            '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n'
            '<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
            '<｜DSML｜invoke name="now"/>\n</｜DSML｜tool_calls>'
        ),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
            "<|constrain|>json<|message|>"
            '{"city": "Rome", "days": 3}<|call|><|start|>assistant to=functions.now<|channel|>commentary<|message|>{}'
        ),
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
            '{"city": "Rome", "days": 3}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>'
            "<|tool_calls_section_end|>"
        ),
        (
            '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n'
            '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>'
        ),
        "<|tool_call_start|>[get_weather(city='Rome', days=3), now()]<|tool_call_end|>",
        '<function_calls>get_weather(city="Rome", days=3)\nnow()</function_calls>',
        '[get_weather("Rome", days=3), now()]',
        '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:3}<tool_call|><|tool_call>call:now{}<tool_call|>',
        '<|tools_prefix|>[{"get_weather": {"city": "Rome", "days": 3}}, {"now": {}}]<|tools_suffix|>',
        '{"name": "get_weather", "parameters": {"city": "Rome", "days": 3}}; {"name": "now", "parameters": {}}',
        '```json\n[{"tool": "get_weather", "arguments": {"city": "Rome", "days": 3}}, {"tool": "now", "arguments": {}}]\n```',
        (
            '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "get_weather", '
            '"arguments": "{\\"city\\":\\"Rome\\",\\"days\\":3}"}}, {"type": "function", "function": {"name": "now", "arguments": "{}"}}]}'
        ),
    ],
)
def test_several_calls_in_one_message_are_read_in_order(text: str) -> None:
    """The templates of the families: calls side by side, and calls without arguments."""
    reading = read_text(text, TOOLS)
    assert calls_in(reading) == TWO
    assert reading.content == ""


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("<parameter=city>\n  two\n\nlines\n</parameter>", {"city": "  two\n\nlines"}),
        ("<parameter=city>\n42\n</parameter>", {"city": "42"}),
        ("<parameter=city>\r\n42\r\n</parameter>\r\n", {"city": "42"}),
        ('<parameter=city>\n<b>"x" & y</b>\n</parameter>', {"city": '<b>"x" & y</b>'}),
        ("<parameter=days>\nmany\n</parameter>", {"days": "many"}),
        ("<parameter=indoors>\nTrue\n</parameter>", {"indoors": True}),
        ('<parameter=tags>\n["a", 1]\n</parameter>', {"tags": ["a", 1]}),
        ("<parameter=extra>\n{'a': None, 'b': [True]}\n</parameter>", {"extra": {"a": None, "b": [True]}}),
        ("<parameter=unheard>\n7\n</parameter>", {"unheard": 7}),
        ("<parameter=days>\nnull\n</parameter>", {"days": None}),
        ("<parameter=city>\nnull\n</parameter>", {"city": "null"}),
        ("<parameter=unheard>\n007\n</parameter>", {"unheard": "007"}),
        ("<parameter=city>\nan </function> and\n</function>\n</parameter>", {"city": "an </function> and\n</function>"}),
        ("<parameter=city>\na", {"city": "a"}),
        ("<parameter=city>a<parameter=days>1</parameter>", {"city": "a", "days": 1}),
    ],
)
def test_values_in_tags_have_the_types_of_the_schema(written: str, meant: dict[str, Any]) -> None:
    """Text stays text; the value of a parameter that the schema does not have is JSON or text."""
    text = f"<tool_call>\n<function=get_weather>\n{written}\n</function>\n</tool_call>"
    assert calls_in(read_text(text, TOOLS)) == [("get_weather", meant)]


def test_a_value_that_contains_a_closing_tag_is_not_truncated() -> None:
    """In a value without its closing tag, the end tag of the call ends the value only where the call can end."""
    text = "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a </tool_call> b</arg_value>\n</tool_call>"
    assert calls_in(read_text(text, TOOLS)) == [("search", {"query": "a </tool_call> b"})]
    assert calls_in(read_text(text.replace("</arg_value>", ""), TOOLS)) == [("search", {"query": "a </tool_call> b"})]


def test_json_arguments_are_returned_unchanged() -> None:
    """Digits, order, repeated keys and white space are for the engine to check."""
    written = '{"b": 1.50,  "a": 10000000000000000000001, "b": 2}'
    (call,) = read_text(f'<tool_call>{{"name": "search", "arguments": {written}}}</tool_call>', TOOLS).calls
    assert call.arguments == written


RUN = TOOLS | {"python": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}


@pytest.mark.parametrize(
    "text",
    [
        'get_weather(city="Rome", days=3), now()<|eot_id|>',
        '<think>Hm.</think>\nget_weather({"city": "Rome", "days": 3})\nnow()',
        'get_weather\n{"city": "Rome", "days": 3}>>>now\n{}',
        'get_weather\n<|content|>{"city": "Rome", "days": 3}<|from|>assistant\n<|recipient|>now\n<|content|>{}<|stop|>',
        '<tool_call>get_weather(city="Rome", days=3)</tool_call><tool_call>now()</tool_call>',
        (
            '<tool_calls><tool_call>{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}</tool_call>\n'
            '<tool_call>{"name": "now"}</tool_call></tool_calls>'
        ),
        (
            '<tool_calls><invoke name="get_weather"><parameter name="city">Rome</parameter><parameter name="days">3</parameter></invoke>'
            '<invoke name="now"></invoke></tool_calls>'
        ),
        '<function_calls>[{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}, {"name": "now"}]</function_calls>',
        "{'name': 'get_weather', 'parameters': {'city': 'Rome', 'days': 3}}\n{'name': 'now', 'parameters': {}}",
        '```json\n{"name": "get_weather", "parameters": {"city": "Rome", "days": 3}}\n{"name": "now", "parameters": {}}\n```',
        '[get_weather.call(city="Rome", days=3), now.call()]',
        '<|python_tag|>[{"name": "get_weather", "parameters": {"city": "Rome", "days": 3}}, {"name": "now", "parameters": {}}]',
        (
            '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather<|tool_call_argument_begin|>{"city": "Rome", "days": 3}'
            "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|><|tool_call_end|><|tool_calls_section_end|>"
        ),
        (
            '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Rome", "days": 3}<｜tool▁call▁end｜>'
            "<｜tool▁call▁begin｜>now<｜tool▁sep｜><｜tool▁call▁end｜>"
        ),
        (
            'analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=get_weather<|message|>{"city": "Rome", "days": 3}'
            "<|call|><|start|>assistant<|channel|>commentary to=functions.now<|message|><|call|>"
        ),
        'function call{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}<|message_sep|>function call{"name": "now"}',
        '✿FUNCTION✿: get_weather✿ARGS✿: {"city": "Rome", "days": 3}✿FUNCTION✿: now✿ARGS✿: {}',
    ],
)
def test_common_variations_of_each_familys_form_are_read(text: str) -> None:
    """Sections in tags of other families, a first call without its opening marker, empty arguments, other quotes."""
    reading = read_text(text, RUN)
    assert calls_in(reading) == TWO
    assert reading.content.strip() == ""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('<|python_tag|>import x\nprint({"a": 1})', ("python", {"code": 'import x\nprint({"a": 1})'})),
        (">>>python\nprint(1)<|eot_id|>", ("python", {"code": "print(1)"})),
        ("<|channel|>commentary to=python code<|message|>print(1)<|call|>", ("python", {"code": "print(1)"})),
        ("Action: search[apples [red] and pears]", ("search", {"query": "apples [red] and pears"})),
        ("Action 1: search[apples]\nObservation 1: none", ("search", {"query": "apples"})),
        ('**Action**: search\n**Action Input**: {"query": "apples"}', ("search", {"query": "apples"})),
        ('Action: search(query="apples")', ("search", {"query": "apples"})),
        ("Action: now\nAction Input:\nObservation: noon", ("now", {})),
        ("<|tool_call>call:search{query:12}<tool_call|>", ("search", {"query": "12"})),
    ],
)
def test_bare_text_becomes_the_value_of_a_tools_only_text_parameter(text: str, meant: tuple[str, Any]) -> None:
    """For example code for an interpreter, and ReAct's brackets; only if the schema leaves one possible meaning."""
    assert calls_in(read_text(text, RUN)) == [meant]
    for end in range(len(text)):
        assert calls_in(read_text(text[:end], RUN, partial=True)) in ([], [meant])


def test_a_tool_may_have_parameters_named_like_schema_keywords() -> None:
    """An object that looks like a schema is a call if the tool's parameters are named this way."""
    draw = {"draw": {"type": "object", "properties": {"type": {"type": "string"}, "title": {"type": "string"}}}}
    text = '{"tool": "draw", "parameters": {"type": "object", "title": "x"}}'
    assert calls_in(read_text(text, draw)) == [("draw", {"type": "object", "title": "x"})]


def test_a_marked_call_of_an_unknown_tool_is_a_call() -> None:
    """The engine answers it with the known tool names."""
    reading = read_text('<tool_call>{"name": "dance", "arguments": {}}</tool_call>', TOOLS)
    assert [call.name for call in reading.calls] == ["dance"]


def test_tool_names_are_matched_as_leniently_as_in_the_engine() -> None:
    """Quotes, white space, a prefix, case and hyphens are ignored."""
    for name in ("functions.get_weather", " get_weather ", "Get-Weather"):
        assert len(read_text(json.dumps({"tool": name, "parameters": {"city": "x"}}), TOOLS).calls) == 1
    assert read_text('{"tool": "functions.search", "parameters": {}}', TOOLS).calls[0].name == "search"


def test_the_fallback_object_is_read_with_its_reasoning() -> None:
    """The strict fallback format contains the reasoning."""
    (call,) = read_text('{"tool": "search", "parameters": {"query": "x"}, "reasoning": "asked"}', TOOLS).calls
    assert (call.name, call.arguments, call.reasoning, call.closed) == ("search", '{"query": "x"}', "asked", "sealed")


def test_an_unknown_dialect_hint_is_ignored() -> None:
    assert len(read_text('{"tool": "now", "parameters": {}}', TOOLS, dialect="no such family").calls) == 1
