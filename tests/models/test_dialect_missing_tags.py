"""Calls in which a model left out a tag or a token, or wrote it twice: read if nothing else can be meant."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.models.dialects import TextReader, collect_parts, read_text
from tests.models.dialect_texts import TOOLS, calls_in

PARIS = [("get_weather", {"city": "Paris", "days": 3})]
ROME = '{"city": "Paris", "days": 3}'
CITY, DAYS = "<parameter=city>\nParis\n</parameter>\n", "<parameter=days>\n3\n</parameter>\n"
KEYS = "<arg_key>city</arg_key>", "<arg_key>days</arg_key>"
VALUES = "<arg_value>Paris</arg_value>", "<arg_value>3</arg_value>"
BEGIN, END, SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
DSML = (
    '<｜DSML｜tool_calls><｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>'
    '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>'
)
FORMS = {
    "a name without its tag": f"<tool_call>get_weather\n{CITY}{DAYS}</function>\n</tool_call>",
    "a name on a line of its own": f"<tool_call>\nget_weather\n{CITY}{DAYS}</tool_call>",
    "a value without its opening tag": f"<tool_call>get_weather{KEYS[0]}Paris</arg_value>{KEYS[1]}{VALUES[1]}</tool_call>",
    "values without opening tags on lines": f"<tool_call>get_weather\n{KEYS[0]}\nParis</arg_value>\n{KEYS[1]}\n3</arg_value>\n</tool_call>",
    "a key that is closed twice": f"<tool_call>get_weather{KEYS[0]}</arg_key>{VALUES[0]}{KEYS[1]}{VALUES[1]}</tool_call>",
    "a key that is opened twice": f"<tool_call>get_weather<arg_key>{KEYS[0]}{VALUES[0]}{KEYS[1]}{VALUES[1]}</tool_call>",
    "an end tag that is repeated": f"<tool_call>\n<function=get_weather>\n{CITY}</parameter>\n{DAYS}</function>\n</tool_call>",
    "a last end tag that is repeated": f"<tool_call>\n<function=get_weather>\n{DAYS}{CITY}</parameter>\n</function>\n</tool_call>",
    "no opening tag of the first key": f"<tool_call>get_weathercity</arg_key>{VALUES[0]}{KEYS[1]}{VALUES[1]}</tool_call>",
    "a space for the opening tag of the first key": f"<tool_call>get_weather city</arg_key>{VALUES[0]}{KEYS[1]}{VALUES[1]}</tool_call>",
    "the tag of a call before the first key": f"<tool_call>get_weather<tool_call>city</arg_key>{VALUES[0]}{KEYS[1]}{VALUES[1]}</tool_call>",
    "colons after the keys": f"<tool_call>get_weather\n{KEYS[0]}:\n{VALUES[0]}\n{KEYS[1]}: {VALUES[1]}\n</tool_call>",
    "an end tag without its token": DSML.replace("</｜DSML｜parameter>", "</parameter>"),
    "tokens with two bars": DSML.replace("｜", "｜｜"),
    "an id without punctuation": f"<|tool_call_begin|>functionsget_weather5<|tool_call_argument_begin|>{ROME}<|tool_call_end|>",
    "an id with underscores": f"<|tool_call_begin|>functions_get_weather_5<|tool_call_argument_begin|>{ROME}<|tool_call_end|>",
    "an id without a colon": f"<|tool_call_begin|>functions.get_weather5<|tool_call_argument_begin|>{ROME}<|tool_call_end|>",
    "an id with a colon too many": f"<|tool_call_begin|>functions:get_weather:5<|tool_call_argument_begin|>{ROME}<|tool_call_end|>",
    "no separator": f"{BEGIN}get_weather{ROME}{END}",
    "no separator before a fence": f"{BEGIN}get_weather\n```json\n{ROME}\n```{END}",
    "no separator after the type": f"{BEGIN}function get_weather\n```json\n{ROME}\n```{END}",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_a_call_with_a_missing_or_repeated_tag_is_read(text: str) -> None:
    """Also behind prose, twice in a message, and in pieces of any size."""
    for whole, count in ((text, 1), (f"I look it up.\n\n{text}", 1), (text + text, 2)):
        reading = read_text(whole, TOOLS)
        assert calls_in(reading) == PARIS * count
        assert reading.content.strip() in ("", "I look it up.")
        reader = TextReader(TOOLS)
        assert collect_parts([*(part for letter in whole for part in reader.feed(letter)), *reader.close()]) == reading


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_such_a_call_is_never_completed(text: str) -> None:
    for end in range(len(text)):
        reading = read_text(text[:end], TOOLS, partial=True)
        assert reading.calls == () or calls_in(reading) == PARIS


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>get_weather would be the tool, with <parameter=city> in it</tool_call>",
        f"<tool_call>get_weather\nin {CITY}</tool_call>",
        f"<tool_call>the name {CITY}</tool_call>",
        f"<tool_call>get_weather{KEYS[0]}Paris{KEYS[1]}3</tool_call>",
        f"<tool_call>get_weather{KEYS[0]}  Paris</arg_value></tool_call>",
        f"<tool_call>get_weather{KEYS[0]}a </arg_value> b</arg_value></tool_call>",
        f"<tool_call>get_weathertown</arg_key>{VALUES[0]}</tool_call>",
        f"<tool_call>get_weathercity{VALUES[0]}</tool_call>",
        f"<tool_call>the get_weathercity</arg_key>{VALUES[0]}</tool_call>",
        f"<tool_call>get_weather<tool_call>town</arg_key>{VALUES[0]}</tool_call>",
        f"<tool_call>get_weather{KEYS[0]}:Paris</arg_value></tool_call>",
        f"<|tool_call_begin|>functionsweather5<|tool_call_argument_begin|>{ROME}<|tool_call_end|>",
        f"{BEGIN}get_weather{ROME}",
        f"{BEGIN}get_weather{ROME} and so on{END}",
        f"{BEGIN}I call get_weather {ROME}{END}",
        f"{BEGIN}get_weather {SEPARATOR[:-1]} {ROME}{END}",
    ],
)
def test_text_that_may_be_something_else_makes_no_call(text: str) -> None:
    """A sentence about a marker, a value whose end is not certain, and arguments that something else follows."""
    assert read_text(text, TOOLS).calls == ()


@pytest.mark.parametrize("value", ["a </function>\n</tool_call> b", "a\n</function>\n</tool_call>", "a</function></tool_call>\n\nb"])
def test_a_value_with_its_own_end_tag_is_not_cut_at_the_end_of_a_call_in_it(value: str) -> None:
    """Without the end tag of the parameter, the end of the call ends the value."""
    call = f"<tool_call>\n<function=search>\n<parameter=query>\n{value}\n</parameter>\n</function>\n</tool_call>"
    assert calls_in(read_text(call * 2, TOOLS)) == [("search", {"query": value})] * 2
    reader = TextReader(TOOLS)
    assert collect_parts([*(part for letter in call for part in reader.feed(letter)), *reader.close()]) == read_text(call, TOOLS)
    for end in range(len(call)):
        assert [found[1] for found in calls_in(read_text(call[:end], TOOLS, partial=True))] in ([], [{"query": value}])
    without = "<tool_call>\n<function=search>\n<parameter=query>\na\n</function>\n</tool_call>"
    assert calls_in(read_text(without * 2 + call, TOOLS)) == [("search", {"query": "a"})] * 2 + [("search", {"query": value})]


@pytest.mark.parametrize(
    ("lines", "meant"),
    [
        ('print(now())\nprint(search(query="x"))', [("now", {}), ("search", {"query": "x"})]),
        ('print(now())\nprint(now())\nsearch(query="x")', [("now", {}), ("now", {}), ("search", {"query": "x"})]),
    ],
)
def test_each_printed_call_of_a_tool_code_block_is_read(lines: str, meant: list[tuple[str, Any]]) -> None:
    assert calls_in(read_text(f"```tool_code\n{lines}\n```", TOOLS)) == meant


@pytest.mark.parametrize("name", ["get_weather\n", "get_weather>"])
def test_the_end_after_an_object_may_be_missing_where_a_call_may_end(name: str) -> None:
    call = f"<tool_call>{name}{ROME}"
    (found,) = read_text(call, TOOLS).calls
    assert (found.closed, calls_in(read_text(f"{call}\n{call}</tool_call>", TOOLS))) == ("finished", PARIS * 2)
    assert read_text(call, TOOLS, partial=True).calls == ()
    assert read_text(f"{call} is the form", TOOLS).calls == ()


UNCLOSED = [
    ('{"city": "Paris", "days": 3}', '{"city": "Paris", "days": 3}'),
    ('{"city": "Paris", "extra": {"a": [1]}}', '{"city": "Paris", "extra": {"a": [1]}}'),
    ('{"city": "Paris"', '{"city": "Paris"'),
    ('{"city": "Paris", "tags": ["a"', '{"city": "Paris", "tags": ["a"'),
    ("{", "{"),
]


@pytest.mark.parametrize(("written", "arguments"), UNCLOSED)
@pytest.mark.parametrize(
    "frame",
    ["<tool_call>\n@\n</tool_call>", "<TOOLCALL>@</TOOLCALL>", "<longcat_tool_call>@</longcat_tool_call>", "<|tool_call|>@<|/tool_call|>"],
)
def test_a_call_without_its_last_brackets_is_a_call_if_its_closing_marker_follows(frame: str, written: str, arguments: str) -> None:
    """Only the bracket of the call itself may be missing. Arguments without their end are passed on as malformed, never completed."""
    text = frame.replace("@", f'{{"name": "get_weather", "arguments": {written}')
    reading = read_text(f"I look.\n{text}\n", TOOLS)
    assert [(call.name, call.arguments) for call in reading.calls] == [("get_weather", arguments)]
    assert reading.content.strip() == "I look."
    reader = TextReader(TOOLS)
    assert collect_parts([*(part for letter in f"I look.\n{text}\n" for part in reader.feed(letter)), *reader.close()]) == reading
    for end in range(text.index("{"), text.rindex("<")):
        assert read_text(text[:end], TOOLS).calls == read_text(text[:end], TOOLS, partial=True).calls == ()


@pytest.mark.parametrize("name", ["<function-name>", "", " "])
def test_an_unclosed_object_without_a_name_is_not_a_call(name: str) -> None:
    text = f'<tool_call>{{"name": "{name}", "arguments": {{"city": "Paris"}}</tool_call>'
    assert read_text(text, TOOLS).content == text


DAMAGED_ENDS = [
    "</parameter/>",
    "</parameter1>",
    "</parameter",
    "</parameter_function>",
    "</parameterfunction>",
    "</param>",
    "</Parameter>",
]
_QWEN = "<tool_call>\n<function=get_weather>\n@</function>\n</tool_call>"
_INVOKE = '<invoke name="get_weather">\n<parameter name="city">{}{}\n<parameter name="days">3</parameter>\n</invoke>'
TAGGED = {
    "qwen-xml": _QWEN.replace("@", f"<parameter=city>\n{{}}\n{{}}\n{DAYS}"),
    "qwen-xml, at the end": _QWEN.replace("@", f"{DAYS}<parameter=city>\n{{}}\n{{}}\n"),
    "other-xml": _INVOKE,
    "minimax-m2": f"<minimax:tool_call>\n{_INVOKE}\n</minimax:tool_call>",
}


@pytest.mark.parametrize("end", [*DAMAGED_ENDS, "</city>"])
@pytest.mark.parametrize("form", TAGGED)
def test_a_misspelt_end_tag_is_not_part_of_the_value(form: str, end: str) -> None:
    """Such a tag, or one named like the parameter, stands where the end of the value is missing."""
    assert calls_in(read_text(TAGGED[form].format("Paris", end), TOOLS)) == PARIS


@pytest.mark.parametrize("value", ["<city>Paris</city>", "a <PARAMETERS>b</parameters>", "<p>Paris</p>", "Paris</p>"])
@pytest.mark.parametrize("form", TAGGED)
def test_a_tag_that_belongs_to_a_value_without_end_stays_in_it(form: str, value: str) -> None:
    """The value opens the tag itself, or the tag is no end of a parameter."""
    assert calls_in(read_text(TAGGED[form].format(value, ""), TOOLS))[0][1]["city"].strip() == value


@pytest.mark.parametrize("header", ["city=Paris", "city: Paris\n", "city = Paris"])
def test_a_value_inside_the_tag_of_its_parameter_is_read(header: str) -> None:
    """Qwen3-Coder and its relatives forget the angle bracket."""
    text = f"<tool_call>\n<function=get_weather>\n<parameter={header}</parameter>\n{DAYS}</function>\n</tool_call>"
    assert calls_in(read_text(text, TOOLS)) == PARIS


@pytest.mark.parametrize("header", ["town=Paris", "=Paris", "city Paris", "city=<b>Paris</b>"])
def test_a_tag_that_names_no_parameter_is_no_call(header: str) -> None:
    """Otherwise the call would run without this argument, if the argument is optional."""
    text = f"<tool_call>\n<function=get_weather>\n{CITY}<parameter={header}</parameter>\n</function>\n</tool_call>"
    assert read_text(text, TOOLS).calls == ()


TURN_TOKENS = ("<|im_end|>", "<|observation|>", "</s>")


@pytest.mark.parametrize("token", TURN_TOKENS)
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n",
        "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n",
        '<minimax:tool_call>\n<invoke name="search">\n<parameter name="query">x</parameter>\n',
        '<function=search>{"query": "x"}',
    ],
)
def test_the_token_that_ends_a_turn_ends_a_call_without_its_last_tags(text: str, token: str) -> None:
    """The token proves as much as the end of a complete message, also if the message was truncated after it."""
    for partial in (False, True):
        reading = read_text(text + token, TOOLS, partial=partial)
        assert (calls_in(reading), reading.content) == ([("search", {"query": "x"})], "")


def test_a_call_with_an_object_inside_may_end_where_the_next_one_begins() -> None:
    """It used to be lost, and only the next one ran."""
    text = '<function=search>{"query": "x"}<function=now>{}</function>'
    assert calls_in(read_text(text, TOOLS)) == [("search", {"query": "x"}), ("now", {})]
    assert calls_in(read_text('<tool_call>\n<function=search>{"query": "x"}\n</tool_call>', TOOLS)) == [("search", {"query": "x"})]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x\n</tool_call>", "x"),
        ("<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x\n\n</tool_call>", "x\n"),
        ("<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x\n</arg_value>\n</tool_call>", "x\n"),
        ("<tool_call>\n<function=search>\n<parameter=query>\nx\n\n</function>\n</tool_call>", "x\n"),
        ("<seed:tool_call><function=search><parameter=query>\nx\n</function></seed:tool_call>", "x"),
    ],
)
def test_the_line_break_before_the_next_tag_is_not_part_of_a_value_without_end_tag(text: str, value: str) -> None:
    assert calls_in(read_text(text, TOOLS)) == [("search", {"query": value})]


def test_a_call_in_tags_that_begin_like_a_token_is_not_ended_by_the_start_of_the_next_tag() -> None:
    """DeepSeek's tags begin like the tokens that end a turn. A truncated message may end within one."""
    parameters = "".join(f'<｜DSML｜parameter name="{key}" string="true">x</｜DSML｜parameter>\n' for key in ("query", "more"))
    text = f'<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n{parameters}</｜DSML｜invoke>\n</｜DSML｜function_calls>'
    for end in range(len(text)):
        assert calls_in(read_text(text[:end], TOOLS, partial=True)) in ([], [("search", {"query": "x", "more": "x"})])


def test_a_marker_in_a_string_of_a_truncated_message_ends_no_call() -> None:
    text = '<tool_call>{"name": "search", "arguments": {"query": "</tool_call>'
    assert (read_text(text, TOOLS, partial=True).calls, read_text(text, TOOLS, partial=True).content) == ((), text)


@pytest.mark.parametrize("value", ["</parameter>", "a </parameter>", "a\n<parameter>\nb\n</parameter>", "<parameter=x>\nb\n</parameter>"])
def test_a_value_may_end_with_an_end_tag(value: str) -> None:
    """A tag that is the whole value, that follows words, or that is opened in the value."""
    call = f"<tool_call>\n<function=search>\n<parameter=query>\n{value}\n</parameter>\n</function>\n</tool_call>"
    assert calls_in(read_text(call, TOOLS)) == [("search", {"query": value})]


def test_an_id_that_may_mean_two_tools_makes_no_call() -> None:
    """A number may belong to the name, and so may the namespace."""
    text = "<|tool_call_begin|>{}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    assert calls_in(read_text(text.format("run22"), {"run": None, "search": None})) == [("run", {})]
    assert read_text(text.format("run22"), {"run": None, "run2": None}).calls == ()
    assert calls_in(read_text(text.format("run2"), {"run": None, "run2": None})) == [("run2", {})]
    assert read_text(text.format("functions_list_1"), {"list": None, "functions_list": None}).calls == ()
