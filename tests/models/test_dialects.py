"""Calls in plain text: what each family writes, what is no call, and that a stream is read as the whole is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.models.dialects import DIALECTS, Found, Part, Reading, Shown, TextReader, Thought, gather, read_text

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "indoors": {"type": "boolean"},
        "tags": {"type": "array"},
        "extra": {"type": "object"},
    },
    "required": ["city"],
}
TOOLS: dict[str, Any] = {
    "get_weather": WEATHER,
    "search": {"type": "object", "properties": {"query": {"type": "string"}}},
    "now": {"type": "object", "properties": {}},
}
NOBODY_SAID: dict[str, Any] = {}


def calls_in(reading: Reading) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments, strict=False)) for call in reading.calls]


@pytest.mark.parametrize("hinted", [False, True], ids=["found", "hinted"])
@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_reads_its_example_and_shows_nothing_of_it(name: str, hinted: bool) -> None:
    """The registry: one example of each family, with a hint and without."""
    dialect = DIALECTS[name]
    if dialect.by_hint and not hinted:
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
def test_several_calls_in_one_message_come_in_their_order(text: str) -> None:
    """The families' templates: calls side by side, and calls without arguments."""
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
        ("<parameter=unheard>\n007\n</parameter>", {"unheard": "007"}),
        ("<parameter=city>\nan </function> and\n</function>\n</parameter>", {"city": "an </function> and\n</function>"}),
        ("<parameter=city>\na", {"city": "a"}),
        ("<parameter=city>a<parameter=days>1</parameter>", {"city": "a", "days": 1}),
    ],
)
def test_values_in_tags_have_the_types_of_the_schema(written: str, meant: dict[str, Any]) -> None:
    """Text stays text; what the schema does not know is JSON or text."""
    text = f"<tool_call>\n<function=get_weather>\n{written}\n</function>\n</tool_call>"
    assert calls_in(read_text(text, TOOLS)) == [("get_weather", meant)]


def test_a_value_that_speaks_of_the_end_of_a_call_is_not_cut_there() -> None:
    """Only where a call can end does a tag inside a value that was not closed end it."""
    text = "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a </tool_call> b</arg_value>\n</tool_call>"
    assert calls_in(read_text(text, TOOLS)) == [("search", {"query": "a </tool_call> b"})]
    assert calls_in(read_text(text.replace("</arg_value>", ""), TOOLS)) == [("search", {"query": "a </tool_call> b\n"})]


def test_arguments_in_json_come_out_as_they_were_read() -> None:
    """Digits, order, doubled keys and spacing are for the engine to judge."""
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
def test_calls_are_read_in_the_forms_that_families_slip_into(text: str) -> None:
    """Sections in other families' tags, first calls without an opener, empty arguments, other quotes."""
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
def test_bare_text_is_the_value_of_a_tools_only_parameter(text: str, meant: tuple[str, Any]) -> None:
    """Code for an interpreter and ReAct's brackets: only where the schema leaves one meaning."""
    assert calls_in(read_text(text, RUN)) == [meant]
    for end in range(len(text)):
        assert calls_in(read_text(text[:end], RUN, partial=True)) in ([], [meant])


SEARCH = '{"name": "search", "arguments": {"query": "x"}}'
NO_CALLS = {
    "a sentence": 'To call it, write {"tool": "search", "parameters": {"query": "x"}} and wait.',
    "a sentence that begins so": '{"tool": "search", "parameters": {"query": "x"}} is what you write.',
    "inline code": 'Write `<tool_call>{"name": "search", "arguments": {}}</tool_call>` for it.',
    "quotes": 'Write "<tool_call>{"name": "search", "arguments": {}}</tool_call>" for it.',
    "another language": '```python\n{"tool": "search", "parameters": {"query": "x"}}\n[search(query="x")]\n```',
    "a shell": '```sh\n<tool_call>{"name": "search", "arguments": {}}</tool_call>\n```',
    "an answer": '{"name": "Alice", "arguments": {"for": "it"}}',
    "an answer with more": '{"name": "search", "arguments": {"query": "x"}, "age": 3}',
    "a tool's definition": '{"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}',
    "a list of definitions": '[{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]',
    "a definition in a fence": '```json\n{"name": "search", "parameters": {"type": "object", "required": ["query"]}}\n```',
    "a name alone": '{"name": "search"}',
    "no tool": "Action: None\nAction Input: {}",
    "another tool": 'Action: dance\nAction Input: {"how": "well"}',
    "a call that a sentence goes on behind": 'search(query="x") is what I would write.',
    "a comment": '<tool_call>so it is called {"name": "search", "arguments": {}}</tool_call>',
    "a call in a list of steps": '1. search(query="x")\n2. now()',
    "a call of what does not fit": 'search(colour="red")',
    "a tool's name and what does not fit": 'search\n{"colour": "red"}',
    "a tool's name and a sentence": "search\nis a tool",
    "an action of another tool": "Action: dance[well]",
    "an action with too little": "Action: get_weather[]",
    "a final answer": 'Final Answer: so it is\nAction: search\nAction Input: {"query": "x"}',
    "an answer in JSON": 'Final Answer:\n{"tool": "search", "parameters": {"query": "x"}}',
    "a thought": '<think><tool_call>{"name": "search", "arguments": {}}</tool_call></think>Rather not.',
    "lists": "[1] says [that](http://x) and [others(etc)] do.",
    "other calls": "[dance(how='well')]",
    "a tag": "Put it into <tool_call> and </tool_call>.",
    "XML of others": '<function name="dance"><param name="how">well</param></function>',
    "XML without an end": '<function name="search"><param name="query">x</param>',
    "XML that does not fit": '<function name="search"><param name="colour">red</param></function>',
    "a line in quotes": f'You would write:\n"{SEARCH}"\nThat is all.',
    "a line in other quotes": f"You would write:\n\u201c{SEARCH}\u201d\nThat is all.",
    "a line in backticks": f"You would write:\n`{SEARCH}`\nThat is all.",
    "a quotation": f"They wrote:\n> {SEARCH}\n\nThat is all.",
    "a quotation of several lines": f'They wrote:\n>{{"name": "search",\n> "arguments": {{}}}}\n> <tool_call>{SEARCH}</tool_call>',
    "a quotation of marks": f"They wrote:\n> <tool_call>{SEARCH}</tool_call>\nThat is all.",
    "lines between quotes": f'The prompt says\n"""\n{SEARCH}\n"""\nand no more.',
    "an example": f"For example:\n{SEARCH}\n\nThat would look for x.",
    "an example in code": f"Here is an example of a call:\n\n    {SEARCH}\n\nThat would look for x.",
    "an example in a fence": f"**Example:**\n```json\n{SEARCH}\n```\nThat would look for x.",
    "two examples": f"Some examples:\n{SEARCH}\n\n{SEARCH}",
    "an example over lines": 'To look for x, for instance, write:\n{\n  "name": "search",\n  "arguments": {"query": "x"}\n}',
    "an example in another language": f"Zum Beispiel:\n{SEARCH}",
}


@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS.keys())
def test_a_mention_is_never_a_call_and_stays_readable(text: str) -> None:
    """Prose, code, quotations and answers: nothing runs because it is spoken of."""
    reading = read_text(text, TOOLS)
    assert reading.calls == ()
    assert reading.content + reading.reasoning == text.replace("<think>", "").replace("</think>", "") or "<think>" in text


def test_a_tool_may_have_parameters_that_are_called_as_schemas_call_theirs() -> None:
    """What looks like a definition is a call where the tool takes just that."""
    draw = {"draw": {"type": "object", "properties": {"type": {"type": "string"}, "title": {"type": "string"}}}}
    text = '{"tool": "draw", "parameters": {"type": "object", "title": "x"}}'
    assert calls_in(read_text(text, draw)) == [("draw", {"type": "object", "title": "x"})]


def test_where_no_names_are_known_only_what_looks_like_nothing_but_a_call_is_one() -> None:
    """`{"name": ..., "age": ...}` is an answer to somebody."""
    assert calls_in(read_text('{"name": "f", "parameters": {"a": 1}}', NOBODY_SAID)) == [("f", {"a": 1})]
    assert read_text('{"action": "f", "input": {"a": 1}}', NOBODY_SAID).calls == ()
    assert read_text('{"name": "Ann", "age": 3}', NOBODY_SAID).calls == ()


@pytest.mark.parametrize("hint", [None, "bare-json", "json-in-text"])
@pytest.mark.parametrize(
    "text",
    [
        f"I look for an example:\n\nNow I call it:\n{SEARCH}",
        f"For example, x. I will look for it now:\n{SEARCH}",
        f"Let me run an example query:\n{SEARCH}",
        f"Let me create the example file:\n```json\n{SEARCH}\n```",
        f"As they wrote:\n> What is x?\n\nI look:\n{SEARCH}",
        f'They wrote "what is x".\n{SEARCH}',
        f'"""\nWhat is x?\n"""\n{SEARCH}',
        f"For example:\n- x\nI look.\n{SEARCH}",
        f"Example:\n<think>No.</think>{SEARCH}",
    ],
)
def test_a_call_after_talk_of_examples_is_a_call(text: str, hint: str | None) -> None:
    """Only a line that announces an example makes one of what follows, and a line of prose ends that."""
    assert calls_in(read_text(text, TOOLS, dialect=hint)) == [("search", {"query": "x"})]


@pytest.mark.parametrize("hint", ["bare-json", "json-in-text", "fenced-json"])
@pytest.mark.parametrize("kind", ["a quotation", "lines between quotes", "an example", "an example in a fence", "two examples"])
def test_a_hint_makes_no_call_of_an_example(kind: str, hint: str) -> None:
    """A hint says how calls are written, not that everything written so is one."""
    assert read_text(NO_CALLS[kind], TOOLS, dialect=hint).calls == ()


def test_a_call_may_follow_a_sentence() -> None:
    """As models write that do not break the line; what goes on behind it is a sentence about it."""
    text = 'I look it up. {"tool": "search", "parameters": {"query": "x"}}'
    assert read_text(text, TOOLS).content == "I look it up. "
    assert len(read_text(text, TOOLS).calls) == 1
    assert read_text(f"{text} is what I write.", TOOLS).calls == ()


def test_what_a_channel_says_to_the_user_is_shown() -> None:
    """Harmony: a preamble is no thought, and analysis is."""
    start = "<|start|>assistant<|channel|>"
    text = f"<|channel|>analysis<|message|>hm<|end|>{start}commentary<|message|>I look.<|end|>{start}final<|message|>Done<|return|>"
    assert read_text(text, TOOLS) == Reading(calls=(), content="I look.Done", reasoning="hm")


def test_an_open_backtick_in_a_thought_does_not_keep_it_open() -> None:
    assert read_text("<think>the `name</think>Hello", TOOLS).content == "Hello"


def test_markers_make_a_call_of_a_tool_that_does_not_exist() -> None:
    """The engine answers it with the names there are."""
    reading = read_text('<tool_call>{"name": "dance", "arguments": {}}</tool_call>', TOOLS)
    assert [call.name for call in reading.calls] == ["dance"]


def test_names_are_read_as_leniently_as_the_engine_resolves_them() -> None:
    """Quotes, white space, a prefix, case and hyphens."""
    for name in ("functions.get_weather", " get_weather ", "Get-Weather"):
        assert len(read_text(json.dumps({"tool": name, "parameters": {"city": "x"}}), TOOLS).calls) == 1
    assert read_text('{"tool": "functions.search", "parameters": {}}', TOOLS).calls[0].name == "search"


def test_what_the_model_made_up_as_an_observation_is_dropped() -> None:
    """The first action is the call; what follows an observation that nobody made is not shown."""
    text = 'Thought: hm\nAction: search\nAction Input: {"query": "x"}\nObservation: found\nAction: now\nAction Input: {}\nFinal Answer: y'
    reading = read_text(text, TOOLS)
    assert calls_in(reading) == [("search", {"query": "x"})]
    assert reading.content == "Thought: hm\n"


def test_the_fallback_object_is_read_with_its_reason() -> None:
    """The strict fallback format."""
    (call,) = read_text('{"tool": "search", "parameters": {"query": "x"}, "reasoning": "asked"}', TOOLS).calls
    assert (call.name, call.arguments, call.reasoning, call.closed) == ("search", '{"query": "x"}', "asked", "sealed")


@pytest.mark.parametrize("opener", ["<think>", "<|START_THINKING|>", "[THINK]", "<|inner_prefix|>"])
def test_thoughts_are_kept_from_the_user(opener: str) -> None:
    closer = {"<think>": "</think>", "[THINK]": "[/THINK]"}.get(opener, opener.replace("START", "END").replace("prefix", "suffix"))
    reading = read_text(f"{opener}hm{closer}\n\nHello", TOOLS)
    assert (reading.reasoning, reading.content) == ("hm", "Hello")


def test_a_thought_that_the_prompt_opened_is_taken_back_when_it_ends() -> None:
    """Shown as it came, for nobody could know; the part that says so is explicit."""
    reader = TextReader(TOOLS)
    assert reader.feed("I wonder") == [Shown(text="I wonder")]
    parts = [Shown(text="I wonder"), *reader.feed("</think>\nYes"), *reader.close()]
    assert Thought(text="", recalled=True) in parts
    assert gather(parts) == Reading(calls=(), content="Yes", reasoning="I wonder")
    known = TextReader(TOOLS, thinking=True)
    assert known.feed("I wonder</think>Yes") == [Thought(text="I wonder"), Shown(text="Yes")]


def test_a_call_ends_a_thought_that_nothing_else_ended() -> None:
    """Some models go from the thought to the call; only the end of the message shows that it was meant."""
    text = '<think>look it up<tool_call>{"name": "search", "arguments": {}}</tool_call>'
    assert len(read_text(text, TOOLS).calls) == 1
    assert read_text(text, TOOLS, partial=True).calls == ()


EXAMPLES = [dialect.example for dialect in DIALECTS.values()]


@pytest.mark.parametrize("example", EXAMPLES, ids=list(DIALECTS))
def test_what_is_cut_off_is_never_made_whole(example: str) -> None:
    """Every beginning of a call: no call, or the whole call, never a part of its arguments."""
    for end in range(len(example)):
        for call in read_text(example[:end], TOOLS, partial=True).calls:
            assert json.loads(call.arguments) == {"city": "Paris"}


def test_a_missing_last_marker_is_forgiven_only_where_the_message_ended_well() -> None:
    """A call of tags without its last one: whether it is complete, only the end of the message can say."""
    text = "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n"
    (call,) = read_text(text, TOOLS).calls
    assert call.closed == "finished"
    assert read_text(text, TOOLS, partial=True) == Reading(calls=(), content=text, reasoning="")


def test_an_unknown_hint_is_no_hint() -> None:
    assert len(read_text('{"tool": "now", "parameters": {}}', TOOLS, dialect="no such family").calls) == 1


def test_a_hint_lets_calls_stand_inside_a_line() -> None:
    """For models that are known to write so."""
    text = 'I look it up: {"name": "search", "parameters": {"query": "x"}} Wait.'
    assert read_text(text, TOOLS).calls == ()
    assert calls_in(read_text(text, TOOLS, dialect="bare-json")) == [("search", {"query": "x"})]


def test_a_call_is_given_out_as_soon_as_it_is_complete() -> None:
    """The calls of a list need not wait for its end."""
    reader = TextReader(TOOLS)
    parts = reader.feed('[{"name": "now", "arguments": {}}, {"name": "search", "arg')
    assert [part.name for part in parts if isinstance(part, Found)] == ["now"]


@pytest.mark.parametrize(
    "text", ["a < b", "{x} y", "[see] y", "<b>bold", "Action speaks", "`x` y", "a <tool y", "[TOOL y", '{"author": "x", ']
)
def test_text_is_released_as_soon_as_it_cannot_be_a_call(text: str) -> None:
    """Letter by letter: nothing is held that no marker and no call can begin with."""
    reader = TextReader(TOOLS)
    assert gather(part for letter in text for part in reader.feed(letter)).content == text


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
    "plain words",
    "日本 🎉",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=8).map("".join)


def read_in_pieces(text: str, sizes: list[int], *, cut: bool) -> Reading:
    reader, parts, start = TextReader(TOOLS), list[Part](), 0
    for size in [*sizes, len(text)]:
        parts += reader.feed(text[start : start + size])
        start += size
    return gather([*parts, *reader.close(cut=cut)])


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 12), max_size=60), st.booleans())
def test_where_a_stream_is_cut_makes_no_difference(text: str, sizes: list[int], cut: bool) -> None:
    """Sans-I/O: the same calls, content and thoughts however the text arrives."""
    whole = read_text(text, TOOLS, partial=cut)
    assert read_in_pieces(text, sizes, cut=cut) == whole
    assert read_in_pieces(text, [1] * len(text), cut=cut) == whole


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_text_without_marks_comes_out_as_it_went_in(text: str) -> None:
    if not any(mark in text for mark in "<[{`>✿◁") and ":" not in text:
        assert read_text(text, TOOLS) == Reading(calls=(), content=text, reasoning="")


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
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_work_grows_with_the_length_and_no_faster(piece: str) -> None:
    """Counted in characters looked at: what opens and never ends costs a bounded number of looks at each character."""
    for size in (20_000, 80_000):
        text = (piece * (size // len(piece) + 1))[:size]
        for step in (size, 97):
            reader = TextReader(TOOLS)
            for start in range(0, size, step):
                reader.feed(text[start : start + step])
            reader.close()
            assert reader.work < 64 * size + 2_000_000


@pytest.mark.parametrize("opener", ['<tool_call>{"name": "search", "arguments": ', "[search(query=", "<|tool_call>call:search{query:"])
def test_depth_is_bounded(opener: str) -> None:
    """A hundred thousand brackets neither recurse nor run."""
    for bracket in ("[", '{"a":', "("):
        text = opener + bracket * 100_000
        assert read_text(text, TOOLS) == Reading(calls=(), content=text, reasoning="")


def test_what_is_longer_than_a_call_may_be_is_text() -> None:
    """A candidate is held to a bound of its own."""
    text = f'<tool_call>{{"name": "search", "arguments": {{"query": "{"x" * 1_100_000}"}}}}</tool_call>'
    assert read_text(text, TOOLS) == Reading(calls=(), content=text, reasoning="")
    reader = TextReader(TOOLS)
    held = 0
    for start in range(0, len(text), 10_000):
        held += len(text[start : start + 10_000]) - sum(
            len(part.text) for part in reader.feed(text[start : start + 10_000]) if isinstance(part, Shown)
        )
        assert held <= 1_100_000
