"""Arguments that are malformed JSON: a call keeps them as written, and never runs with a part of a value. The engine tells the model."""

from __future__ import annotations

import json

import pytest

from callgate.models.dialects import ParsedText, TextReader, collect_parts, read_text
from tests.models.dialect_texts import TOOLS

FORMS = {
    "hermes": '<tool_call>\n{"name": "search", "arguments": @}\n</tool_call>',
    "qwen-xml": "<function=search>@</function>",
    "glm": "<tool_call>search\n@\n</tool_call>",
    "jamba": '<tool_calls>[{"name": "search", "arguments": @}]</tool_calls>',
    "mistral": "[TOOL_CALLS]search[ARGS]@",
    "deepseek": "<｜tool▁call▁begin｜>search<｜tool▁sep｜>@<｜tool▁call▁end｜>",
    "kimi-k2": "<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>@<|tool_call_end|>",
    "harmony": "<|channel|>commentary to=functions.search <|constrain|>json<|message|>@<|call|>",
    "cohere": '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "search", "parameters": @}]<|END_ACTION|>',
    "internlm": '<|action_start|><|plugin|>{"name": "search", "parameters": @}<|action_end|>',
    "functionary": "<|recipient|>search\n<|content|>@<|stop|>",
    "solar": "<|tool_call:begin|>1<|tool_call:name|>search<|tool_call:args|>@<|tool_call:end|>",
    "react": "Action: search\nAction Input: @",
}
WITH_END = {name: form for name, form in FORMS.items() if name not in ("mistral", "react")}
UNESCAPED = ['use "}" to close', 'a "} b', '"}', 'f("}")', 'say "}} now', 'x"}]', 'x"}, {"query": "y"}']


def read_letters(text: str) -> ParsedText:
    reader = TextReader(TOOLS)
    return collect_parts([*(part for letter in text for part in reader.feed(letter)), *reader.close()])


@pytest.mark.parametrize("value", UNESCAPED)
@pytest.mark.parametrize("name", FORMS)
def test_a_value_is_not_cut_at_a_bracket_after_an_unescaped_quotation_mark(name: str, value: str) -> None:
    """The text up to the bracket may be valid JSON, with a value that is shorter than the one that the model wrote."""
    written = f'{{"query": "{value}"}}'
    text = FORMS[name].replace("@", written)
    reading = read_text(text, TOOLS)
    assert [(call.name, call.arguments) for call in reading.calls] == [("search", written)]
    assert (reading.content, read_letters(text)) == ("", reading)


@pytest.mark.parametrize("name", FORMS)
def test_such_a_value_is_not_completed_if_the_message_is_truncated(name: str) -> None:
    text = FORMS[name].replace("@", '{"query": "use "}" to close"}')
    behind = text.index('"}" to') + len('"}" t')
    assert read_text(text[:behind], TOOLS, partial=True) == ParsedText(calls=(), content=text[:behind], reasoning="")


@pytest.mark.parametrize(
    "written",
    [
        '{"query": "print("hi")"}',
        '{"query": "a = ["x", "y"]; f("}")"}',
        '{"query": "x}',
        "{'query': 'it's'}",
        '{query: "x"}',
        '{"query" "x"}',
    ],
)
@pytest.mark.parametrize("name", WITH_END)
def test_a_call_with_malformed_arguments_before_its_end_marker_is_a_call(name: str, written: str) -> None:
    """The user sees no markers, and the model is told what is wrong. A call after it is read as well."""
    text = WITH_END[name].replace("@", written) + '\n<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    reading = read_text(text, TOOLS)
    assert [(call.name, call.arguments) for call in reading.calls] == [("search", written), ("now", "{}")]
    assert (reading.content, read_letters(text)) == ("", reading)


PYTHON_FORMS = {
    "lfm2": '<|tool_call_start|>[search(query="@")]<|tool_call_end|>',
    "olmo-xml": '<function_calls>search(query="@")</function_calls>',
    "pythonic": '[search(query="@")]',
    "tool-code": '```tool_code\nprint(search(query="@"))\n```',
    "llama-python-tag": '<|python_start|>[search(query="@")]<|python_end|>',
    "hermes": '<tool_call>search(query="@")</tool_call>',
    "gemma": '<|tool_call>call:search{query:"@"}<tool_call|>',
}


@pytest.mark.parametrize("value", ['use ")" to close', 'a ")] b', '")', 'say ")) x', 'print(")")', '"} b'])
@pytest.mark.parametrize("name", PYTHON_FORMS)
def test_a_python_call_is_not_cut_at_a_bracket_after_an_unescaped_quotation_mark(name: str, value: str) -> None:
    text = PYTHON_FORMS[name].replace("@", value)
    for call in read_text(text, TOOLS).calls:
        assert json.loads(call.arguments) == {"query": value}
    assert read_letters(text) == read_text(text, TOOLS)


@pytest.mark.parametrize("after", ["", "]", '\nI said "it" (once)', "\nnow()", ";", "</function_calls>"])
def test_text_after_a_python_call_is_not_part_of_it(after: str) -> None:
    call = read_text(f'<function_calls>search(query="x"){after}', TOOLS).calls[0]
    assert json.loads(call.arguments) == {"query": "x"}


@pytest.mark.parametrize("name", WITH_END)
def test_brackets_after_complete_arguments_are_not_text(name: str) -> None:
    reading = read_text(WITH_END[name].replace("@", '{"query": "x"}') + "}", TOOLS)
    assert [json.loads(call.arguments) for call in reading.calls] == [{"query": "x"}]


@pytest.mark.parametrize("members", ['"name" "search", "arguments": {}', '"name": "<name>", "arguments": {"x" 1}', '"arguments": {"x" 1}'])
def test_malformed_json_without_the_name_of_a_tool_is_text(members: str) -> None:
    text = f"<tool_call>{{{members}}}</tool_call>"
    assert read_text(text, TOOLS) == ParsedText(calls=(), content=text, reasoning="")


@pytest.mark.parametrize("after", ["", "\n\nI will tell you.", " [TOOL_CALLS]now[ARGS]{}", "</s>", '\n\nIt is "soon".'])
def test_text_after_complete_arguments_is_not_part_of_them(after: str) -> None:
    """Mistral has no marker for the end of a call."""
    text = '[TOOL_CALLS]search[ARGS]{"query": "x"}'
    reading = read_text(text + after, TOOLS)
    assert json.loads(reading.calls[0].arguments) == {"query": "x"}
    assert read_letters(text + after) == reading


@pytest.mark.parametrize("written", [r'{"query": "C:\apps"}', r'{"query": "\d+"}', r'{"query": "\x41"}', r"{'query': '\0'}"])
def test_escapes_that_only_python_has_are_not_read_as_python(written: str) -> None:
    """In a path, Python would read a control character."""
    (call,) = read_text(f"Action: search\nAction Input: {written}", TOOLS).calls
    assert call.arguments == written
    (call,) = read_text('[search(query="\\d+")]', TOOLS).calls
    assert json.loads(call.arguments) == {"query": r"\d+"}
