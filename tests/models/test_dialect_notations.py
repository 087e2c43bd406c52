"""Calls in plain text: notations of single families, and mistakes that their models make."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.models.dialects import TextReader, collect_parts, read_text
from tests.models.dialect_texts import TOOLS, calls_in

ROME = [("get_weather", {"city": "Rome"})]
Q = '<|"|>'


@pytest.mark.parametrize(
    "text",
    [
        f"<|tool_call>:get_weather{{city:{Q}Rome{Q}}}<tool_call|>",
        f"<|tool_call>get_weather{{city:{Q}Rome{Q}}}<tool_call|>",
        f"call:get_weather{{city:{Q}Rome{Q}}}<tool_call|>",
        f"call:get_weather{{city:{Q}Rome{Q}}}",
        f"<|channel>thought\nhm<channel|>call:get_weather{{city:{Q}Rome{Q}}}<tool_call|>",
        f"<|tool_call>call:get_weather(city:{Q}Rome{Q})<tool_call|>",
        "<|tool_call>call:get_weather{city:'Rome'}<tool_call|>",
        f"<|tool_call>call:get_weather{{city:'Rome'{Q}}}<tool_call|>",
        '<|tool_call>call:get_weather{"city":"R\\u006fme"}<tool_call|>',
        f"<|tool_call>call:get_weather{{city:{Q}Rome}}<tool_call|>",
        "<|tool_call>call:get_weather{city:Rome}<tool_call|><eos>",
    ],
)
@pytest.mark.parametrize("tools", [TOOLS, {}], ids=["known", "unknown"])
def test_a_gemma_call_without_some_tokens_or_quotes_is_read(text: str, tools: dict[str, Any]) -> None:
    """Omissions and variations are read if exactly one meaning is possible."""
    reading = read_text(text, tools)
    assert (calls_in(reading), reading.content) == (ROME, "")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("city:Rome, in the centre,days:3", {"city": "Rome, in the centre", "days": 3}),
        ("city:a < b {c} [d],days:3", {"city": "a < b {c} [d]", "days": 3}),
        ("city:http://x.y/z?a=b", {"city": "http://x.y/z?a=b"}),
        ("city:[1, 2]", {"city": "[1, 2]"}),
        ("tags:[a, b],indoors:false", {"tags": ["a", "b"], "indoors": False}),
        (f"extra:{{x:{Q}a}}{Q},y:[{{z:1}}]}}", {"extra": {"x": "a}", "y": [{"z": 1}]}}),
        ('city:"a \\"b\\" \\\\"', {"city": 'a "b" \\'}),
    ],
)
def test_an_unquoted_text_value_extends_to_the_next_parameter(written: str, meant: dict[str, Any]) -> None:
    """Gemma: the tool's schema defines which values are text, and which parameters may follow."""
    text = f"<|tool_call>call:get_weather{{{written}}}<tool_call|>"
    assert calls_in(read_text(text, TOOLS)) == [("get_weather", meant)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (f"city:{Q}f({Q}{Q}{Q}SELECT 1{Q}{Q}{Q}).df(){Q},days:3", {"city": 'f("""SELECT 1""").df()', "days": 3}),
        (f"city:{Q}f({Q}a{Q}, 1){Q}", {"city": 'f("a", 1)'}),
        (f"city:{Q}f({Q}a{Q} , 1){Q}", {"city": 'f("a" , 1)'}),
        (f"city:{Q}{{{Q}a{Q}: {Q}b{Q}, {Q}c{Q}: 1}}{Q}", {"city": '{"a": "b", "c": 1}'}),
        (f"days:3,city:{Q}he says {Q}hello{Q} twice{Q}", {"city": 'he says "hello" twice', "days": 3}),
        (f"city:{Q}see {Q} here{Q}", {"city": f"see {Q} here"}),
        (f"city:{Q}Paris{Q},b$c:{Q}x{Q}", {"city": "Paris", "b$c": "x"}),
    ],
)
def test_a_pair_of_gemma_tokens_in_a_text_value_means_quotation_marks(written: str, meant: dict[str, Any]) -> None:
    """Code in a value has quotation marks, for which the model writes the token as well."""
    text = f"<|tool_call>call:get_weather{{{written}}}<tool_call|>"
    assert calls_in(read_text(text, TOOLS)) == [("get_weather", meant)]
    reader = TextReader(TOOLS)
    parts = [*(part for letter in text for part in reader.feed(letter)), *reader.close()]
    assert calls_in(collect_parts(parts)) == [("get_weather", meant)]


def test_a_gemma_value_whose_end_is_not_certain_makes_no_call() -> None:
    """Without a comma after it, the next parameter would become a part of the value."""
    assert read_text(f"<|tool_call>call:get_weather{{city:{Q}Paris{Q}days:3}}<tool_call|>", TOOLS).calls == ()


def test_two_gemma_calls_between_one_pair_of_tokens_are_read() -> None:
    text = f"<|tool_call>call:get_weather{{city:{Q}Rome{Q}}}call:now{{}}<tool_call|>"
    assert calls_in(read_text(text, TOOLS)) == [*ROME, ("now", {})]


@pytest.mark.parametrize(
    "text",
    [
        *("call:dance{how:well}", "call: get_weather{city}", "I call:get_weather{city:Rome}", "call:now"),
        *('to=functions.dance{"a": 1}', 'to=get_weather {"city": "Rome"}', "url?to={name}", 'Of to=functions.now there is {"a": 1}'),
    ],
)
def test_text_resembling_an_unmarked_call_of_gemma_or_harmony_stays_text(text: str) -> None:
    """Without any token, the tool must exist and the call must be complete."""
    assert read_text(text, TOOLS).calls == ()
    assert read_text(text, TOOLS).content == text


@pytest.mark.parametrize(
    "text",
    [
        '<|tools_prefix|>[{"get_weather": {"city": "Rome"}}, {"now": null}]<|tools_suffix|>',
        (
            '<｜GCML｜tool_calls>\n<｜GCML｜invoke name="get_weather">\n'
            '<｜GCML｜parameter name="city" string="true">Rome</｜GCML｜parameter>\n'
            '</｜GCML｜invoke>\n<｜GCML｜invoke name="now">\n</｜GCML｜invoke>\n</｜GCML｜tool_calls></s>'
        ),
        (
            "<|tool_call:start|>get_weather\n<|tool_arg:start|>city<|tool_arg:value|>Rome<|tool_arg:end|>\n<|tool_call:end|>\n"
            "<|tool_call:start|>now\n<|tool_call:end|>"
        ),
        '```tool_code\nprint(default_api.get_weather(city="Rome"))\n```\n<tool_code>\nnow()\n</tool_code>',
        (
            'all\n<|content|>\n<|from|>assistant\n<|recipient|>get_weather\n<|content|>{"city": "Rome"}\n<|from|>assistant\n'
            "<|recipient|>now\n<|content|>{}<|stop|>"
        ),
        '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Rome"}}, {"name": "now"}]</tool_calls>\n</answer>',
        '<tool_call>{"tool_calls": [{"name": "get_weather", "arguments": {"city": "Rome"}}, {"name": "now"}]}</tool_call>',
        (
            '{"tool_uses": [{"recipient_name": "functions.get_weather", "parameters": {"city": "Rome"}}, '
            '{"recipient_name": "functions.now", "parameters": {}}]}'
        ),
        (
            '{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}, '
            '{"name": "now", "arguments": {}}]}'
        ),
        '{"thought": "Both.", "tool_calls": [{"name": "get_weather", "arguments": {"city": "Rome"}}, {"name": "now", "arguments": {}}]}',
        '{"tool": {"name": "get_weather", "arguments": {"city": "Rome"}}}\n{"functionCall": {"name": "now", "args": {}}}',
        '```tool_code\n[{"name": "get_weather", "arguments": {"city": "Rome"}}, {"tool": "now"}]\n```',
        '>>>get_weather\r\n{"city": "Rome"}\r\n>>>now\r\n{}',
        'commentary to=functions.get_weather json{"city": "Rome"}\nto=functions.now{}',
        '<|header_start|>assistant<|header_end|>\n\n[get_weather(city="Rome"), now()]<|eot|>',
        '<tool_use>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_use>\n<TOOL_CALL>{"name": "now", "input": {}}</TOOL_CALL>',
        '```JSON\n[{"name": "get_weather", "arguments": {"city": "Rome"}}, {"name": "now", "arguments": {}}]\n```',
    ],
)
def test_two_calls_are_read_and_no_markup_remains_in_the_content(text: str) -> None:
    """Arguments that are `null`, sections, prefixes, parts for the user, and tags around all calls."""
    reading = read_text(text, TOOLS)
    assert (calls_in(reading), reading.content.strip()) == ([*ROME, ("now", {})], "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('<tool_call>{"name": null, "arguments": {"a": 1}}</tool_call>', "arguments"),
        ('{"name": "none", "arguments": {}}', "none"),
        ('{"role": "assistant", "content": "Hi", "tool_calls": [{"name": "now", "arguments": {}}]}', "now"),
        ('{"role": "user", "tool_calls": [{"name": "now", "arguments": {}}]}', "now"),
        ('Action:\n```\n{"action": "Final HostAnswer", "action_input": {"a": 1}}\n```', "Final Answer"),
    ],
)
def test_text_without_a_tool_name_makes_no_call(text: str, name: str) -> None:
    """Also if the names of the tools are not known."""
    assert name not in [call.name for call in read_text(text, {}).calls]


@pytest.mark.parametrize(
    "text",
    [
        'Action : search\nAction Input : {"query": "apples"}',
        'ACTION: search\nACTION INPUT: {"query": "apples"}',
        'Action: `search`\nAction Input: `{"query": "apples"}`',
        'Thought: I look. Action: search Action Input: {"query": "apples"}',
        "Action: search, Action Input: apples",
        'Action:\n```\n{"action": "search", "action_input": "apples"}\n```',
        '{"action": "search", "action_input": "apples"}',
        'Action: {"action": "search", "action_input": {"query": "apples"}}',
    ],
)
def test_react_actions_are_read_in_every_form_that_agent_parsers_accept(text: str) -> None:
    """The forms come from the ReAct parsers of agent libraries."""
    assert calls_in(read_text(text, TOOLS)) == [("search", {"query": "apples"})]
    for end in range(len(text)):
        assert calls_in(read_text(text[:end], TOOLS, partial=True)) in ([], [("search", {"query": "apples"})])


@pytest.mark.parametrize("after", ["", "\nObservation: y", "\n\nmore", "\n```\nmore", " and more"])
@pytest.mark.parametrize("hint", [None, "react"])
def test_a_list_of_react_actions_ends_with_its_bracket(hint: str | None, after: str) -> None:
    """Any text may follow the list, and the list may be no call at all."""
    text = f'Action: [{{"tool_name": "search", "parameters": {{"query": "x"}}}}]{after}'
    assert calls_in(read_text(text, TOOLS, dialect=hint)) == [("search", {"query": "x"})]
    for other in ("[note]", "[1]", "[", "{}", "{x}", "[]"):
        reading = read_text(f"Action: {other}{after}", TOOLS, dialect=hint)
        assert (reading.calls, reading.content) == ((), f"Action: {other}{after}")


@pytest.mark.parametrize("given", ["", "None", "null", "N/A"])
def test_a_react_action_without_input_calls_only_a_tool_that_needs_none(given: str) -> None:
    assert calls_in(read_text(f"Action: now\nAction Input: {given}", TOOLS)) == [("now", {})]
    assert read_text(f"Action: get_weather\nAction Input: {given}", TOOLS).calls == ()


PATHS: dict[str, Any] = {"hub/get-issue": {"type": "object", "properties": {"number": {"type": "integer"}}}}


@pytest.mark.parametrize(
    "text",
    [
        "[hub/get-issue(number=7)]",
        "hub/get-issue(number=7)",
        "<|tool_call_start|>[hub/get-issue(number=7)]<|tool_call_end|>",
        "<tool_call>[hub/get-issue(number=7)]</tool_call>",
        "<function_calls>hub/get-issue(number=7)</function_calls>",
        "```tool_code\nprint(hub/get-issue(number=7))\n```",
        "Action: hub/get-issue(number=7)",
        '>>>hub/get-issue\n{"number": 7}',
        'hub/get-issue\n{"number": 7}',
    ],
)
def test_a_python_call_may_have_every_name_that_a_tool_may_have(text: str) -> None:
    assert calls_in(read_text(text, PATHS)) == [("hub/get-issue", {"number": 7})]


def test_an_f_string_with_a_field_is_no_argument() -> None:
    """Its value is not known; a prefix without a field changes nothing, and a raw string keeps its backslashes."""
    assert read_text('[search(query=f"{city}")]', TOOLS).calls == ()
    assert calls_in(read_text(r'[search(query=f"a" rf"\d" "b")]', TOOLS)) == [("search", {"query": r"a\db"})]


def test_harmony_tokens_may_have_a_space_after_them() -> None:
    text = (
        "<|channel|> analysis<|message|> hm<|end|><|start|> assistant<|channel|> commentary<|message|> I look.<|end|><|start|> assistant"
        ' to=functions.search<|channel|> commentary <|constrain|>  json<|message|> {"query": "x"}<|end|>'
    )
    reading = read_text(text, TOOLS)
    assert (calls_in(reading), reading.content.strip(), reading.reasoning.strip()) == ([("search", {"query": "x"})], "I look.", "hm")
    assert read_text("<|channel|> final<|message|> Hello<|return|>", TOOLS).content.strip() == "Hello"


@pytest.mark.parametrize("call", ['{"name": "search", "arguments": {"query": "x"}}', '{"tool": "search", "parameters": {"query": "x"}}'])
def test_an_object_below_the_name_of_a_tool_may_be_a_whole_call(call: str) -> None:
    """The name is then a title, and not a call with this object as its arguments."""
    reading = read_text(f"Search\n{call}", TOOLS)
    assert (calls_in(reading), reading.content) == ([("search", {"query": "x"})], "Search\n")
    assert read_text(f"Search\n{call[:-1]}", TOOLS).calls == ()
