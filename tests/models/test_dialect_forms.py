"""Forms of calls that the families' own parsers read: line breaks in headers, no arguments, missing openers, sets, types of values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate.models.dialects import read_text
from tests.models.dialect_texts import calls_in

KNOWN: dict[str, Any] = {
    "f": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "n": {"type": "integer"},
            "note": {"type": "string"},
            "flag": {"type": "boolean"},
            "items": {"type": "array"},
            "data": {"type": "object"},
            "opt": {"type": ["string", "null"]},
        },
    },
    "now": {"type": "object", "properties": {}},
}
Row = tuple[str, dict[str, Any], list[tuple[str, Any]]]
HARMONY: list[Row] = [
    (
        '<|channel|>commentary\nto=functions.f\n<|constrain|>json\n<|message|>\n{"city": "Paris"}\n<|call|>',
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    (
        '<|start|>assistant\n<|channel|>commentary to=functions.f\n<|constrain|>json<|message|>{"city": "Paris"}<|call|>',
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    (
        (
            "<|channel|>analysis<|message|>hm<|end|>\n<|start|>assistant\n<|channel|>"
            'commentary to=functions.f <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
        ),
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    (
        '<|start|>assistant to=functions.f<|channel|>commentary\n<|constrain|>json<|message|>{"city": "Paris"}<|call|>',
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    ('<|channel|>commentary to=f <|constrain|>json<|message|>{"city": "Paris"}<|call|>', KNOWN, [("f", {"city": "Paris"})]),
    ("<|channel|>commentary to=functions.now<|message|><|call|>", KNOWN, [("now", {})]),
    (
        (
            '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city": "Paris"}<|call|><|start|>'
            "assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
        ),
        KNOWN,
        [("f", {"city": "Paris"}), ("now", {})],
    ),
    ('<|channel|>commentary to=functions.f code<|message|>{"city": "Paris"}<|call|>', KNOWN, [("f", {"city": "Paris"})]),
    (
        '<|channel|>commentary to=functions.f<|channel|>commentary<|constrain|>json<|message|>{"city": "Paris"}<|call|>',
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    ("<|start|>assistant to=user<|channel|>final<|message|>Hello", KNOWN, []),
    (" to=user<|channel|>final<|message|>Hello", KNOWN, []),
    ('<|channel|>commentary to=user<|message|>{"a": 1}', KNOWN, []),
    ("<|channel|>commentary to=assistant<|message|>x", KNOWN, []),
]
K2_HORIZON: list[Row] = [
    (
        (
            "<ifm|tool_calls>\n<ifm|tool_call>f\n<ifm|arg_key>city</ifm|arg_key>\n<ifm|arg_value>"
            "Paris</ifm|arg_value>\n</ifm|tool_call>\n</ifm|tool_calls>"
        ),
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    (
        (
            "<ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>n</ifm|arg_key><ifm|arg_type>integer</ifm|arg_type>"
            "<ifm|arg_value>5</ifm|arg_value></ifm|tool_call></ifm|tool_calls>"
        ),
        {},
        [("f", {"n": 5})],
    ),
    (
        (
            "<ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>n</ifm|arg_key><ifm|arg_type>string</ifm|arg_type>"
            "<ifm|arg_value>5</ifm|arg_value></ifm|tool_call></ifm|tool_calls>"
        ),
        {},
        [("f", {"n": "5"})],
    ),
    ("<ifm|tool_calls><ifm|tool_call>now</ifm|tool_call></ifm|tool_calls>", {}, [("now", {})]),
    (
        '<ifm|tool_calls><ifm|tool_call>{"name": "f", "arguments": {"city": "Paris"}}</ifm|tool_call></ifm|tool_calls>',
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    (
        (
            "x\n<ifm|tool_calls><ifm|tool_call>now</ifm|tool_call><ifm|tool_call>f<ifm|arg_key>city</ifm|arg_key>"
            "<ifm|arg_value>Paris</ifm|arg_value></ifm|tool_call></ifm|tool_calls>y"
        ),
        KNOWN,
        [("now", {}), ("f", {"city": "Paris"})],
    ),
    (
        (
            "<ifm|tool_calls><ifm|tool_call>f<ifm|arg_key>items</ifm|arg_key><ifm|arg_type>"
            'array[string]</ifm|arg_type><ifm|arg_value>["a"]</ifm|arg_value></ifm|tool_call></ifm|tool_calls>'
        ),
        {},
        [("f", {"items": ["a"]})],
    ),
]
HUNYUAN: list[Row] = [
    ("<tool_calls><tool_call>now<tool_sep></tool_call></tool_calls>", KNOWN, [("now", {})]),
    ("<tool_calls>\n<tool_call>now<tool_sep>\n</tool_call>\n</tool_calls>", KNOWN, [("now", {})]),
    ("<tool_calls>\n<tool_call>now\n</tool_call>\n</tool_calls>", {}, [("now", {})]),
    ("<tool_calls><tool_call>now</tool_call></tool_calls>", {}, [("now", {})]),
    ('<tool_calls>[{"name": "now", "arguments": {}}]</tool_calls>', KNOWN, [("now", {})]),
    ('<tool_calls>[{"name": "now"}]</tool_calls>', KNOWN, [("now", {})]),
    ('<tool_calls>[{"name": "now", "arguments": null}]</tool_calls>', KNOWN, [("now", {})]),
    (
        (
            "<tool_calls><tool_call>now<tool_sep></tool_call><tool_call>f<tool_sep><arg_key>city</arg_key>"
            "<arg_value>Paris</arg_value></tool_call></tool_calls>"
        ),
        {},
        [("now", {}), ("f", {"city": "Paris"})],
    ),
    ("<tool_calls:ab12><tool_call:ab12>now<tool_sep:ab12></tool_call:ab12></tool_calls:ab12>", KNOWN, [("now", {})]),
    ("<tool_calls:ab12><tool_call:ab12>now</tool_call:ab12></tool_calls:ab12>", {}, [("now", {})]),
    ('<tool_calls>[{"name": "now", "arguments": ""}]</tool_calls>', KNOWN, [("now", {})]),
]
GEMMA: list[Row] = [
    ('<|tool_call>call:f(city="Paris")<tool_call|>', KNOWN, [("f", {"city": "Paris"})]),
    ("<|tool_call>call:f(n=1, flag=True)<tool_call|>", KNOWN, [("f", {"n": 1, "flag": True})]),
    ('call:f(city="Paris")', KNOWN, [("f", {"city": "Paris"})]),
    ("<|tool_call>call:f{city:null}<tool_call|>", KNOWN, [("f", {"city": None})]),
    ("<|tool_call>call:f{city:null}<tool_call|>", {}, [("f", {"city": None})]),
    ("<|tool_call>call:now()<tool_call|>", KNOWN, [("now", {})]),
    ('<|tool_call>call:f{city:<|"|>null<|"|>}<tool_call|>', KNOWN, [("f", {"city": "null"})]),
    (
        "<start_function_call>call:f{n:5,flag:true,items:[<escape>a<escape>,null],data:{k:null}}<end_function_call>",
        KNOWN,
        [("f", {"n": 5, "flag": True, "items": ["a", None], "data": {"k": None}})],
    ),
    ('<|tool_call>call:f{city:<|"|>a, b: {c}<|"|>,n:-1.5e3}<tool_call|>', KNOWN, [("f", {"city": "a, b: {c}", "n": -1500.0})]),
    ('<|tool_call>call:f{city:<|"|><|"|>}<tool_call|>', KNOWN, [("f", {"city": ""})]),
    ('<|tool_call>call: f {city: "Paris"}<tool_call|>', KNOWN, [("f", {"city": "Paris"})]),
    ('<|tool_call>call:f(city=<|"|>Paris<|"|>)<tool_call|>', KNOWN, [("f", {"city": "Paris"})]),
    ("<|tool_call>call:f(city='Paris', items=[1, 2])<tool_call|>", KNOWN, [("f", {"city": "Paris", "items": [1, 2]})]),
]
BRACKETED: list[Row] = [
    ('[Calling tool: f({"city": "Paris"})]', KNOWN, [("f", {"city": "Paris"})]),
    ('I look.\n[Calling tool: f({"city": "Paris"})]\n', KNOWN, [("f", {"city": "Paris"})]),
    ('[Calling tool: f(city="Paris")]', KNOWN, [("f", {"city": "Paris"})]),
    ("[Calling tool: now()]", KNOWN, [("now", {})]),
    ('[Calling tool: f({"city": "Paris"})]\n[Calling tool: now({})]', KNOWN, [("f", {"city": "Paris"}), ("now", {})]),
    ('[Calling tool: unknown({"city": "Paris"})]', KNOWN, []),
    ("[Calling tool: f]", KNOWN, []),
    ('[Calling tool="f", arguments={"city": "Paris"}]', KNOWN, []),
]
LFM2: list[Row] = [
    ("<|tool_call_start|>[f(items={1, 2})]<|tool_call_end|>", KNOWN, [("f", {"items": [1, 2]})]),
    ('<|tool_call_start|>[f(items={"a"}), now()]<|tool_call_end|>', KNOWN, [("f", {"items": ["a"]}), ("now", {})]),
    ('<|tool_call_start|>[f(items=(1, "b"))]<|tool_call_end|>', KNOWN, [("f", {"items": [1, "b"]})]),
    (
        '<|tool_call_start|>[f(city="Paris")]<|tool_call_end|><|tool_call_start|>[now()]<|tool_call_end|>',
        KNOWN,
        [("f", {"city": "Paris"}), ("now", {})],
    ),
    ('<|tool_call_start|>f(city="Paris")\nnow()<|tool_call_end|>', KNOWN, [("f", {"city": "Paris"}), ("now", {})]),
    (
        '<|tool_call_start|>[f(city="Paris", flag=True, opt=None, n=-5)]<|tool_call_end|>',
        KNOWN,
        [("f", {"city": "Paris", "flag": True, "opt": None, "n": -5})],
    ),
    ('<|tool_call_start|>[{"name": "f", "arguments": {"city": "Paris"}}]<|tool_call_end|>', KNOWN, [("f", {"city": "Paris"})]),
    ('<|tool_call_start|>[f(data={"a": {1, 2}, "b": {}})]<|tool_call_end|>', KNOWN, [("f", {"data": {"a": [1, 2], "b": {}}})]),
    ('<|tool_call_start|>[f(city="Paris")]', KNOWN, [("f", {"city": "Paris"})]),
    ('<|tool_call_start|>[f(city="it\'s")]<|tool_call_end|>', KNOWN, [("f", {"city": "it's"})]),
    ("<|tool_call_start|>[f(city='say \\'x\\' \"y\"')]<|tool_call_end|>", KNOWN, [("f", {"city": "say 'x' \"y\""})]),
    ('<|tool_call_start|>[ns.f(city="Paris")]<|tool_call_end|>', {}, [("ns.f", {"city": "Paris"})]),
    ("<|tool_call_start|>[f(n=1_000)]<|tool_call_end|>", KNOWN, [("f", {"n": 1000})]),
    ("<|tool_call_start|>[f(n=+5)]<|tool_call_end|>", KNOWN, [("f", {"n": 5})]),
    ("<|tool_call_start|>[f(n=2*3)]<|tool_call_end|>", KNOWN, []),
]
GLM: list[Row] = [
    ("f\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>", KNOWN, [("f", {"city": "Paris"})]),
    ("f<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>", {}, [("f", {"city": "Paris"})]),
    ("<think>hm</think>f<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>", KNOWN, [("f", {"city": "Paris"})]),
    (
        "f<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call><tool_call>now</tool_call>",
        KNOWN,
        [("f", {"city": "Paris"}), ("now", {})],
    ),
    ("hm</think>f<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>", KNOWN, [("f", {"city": "Paris"})]),
    ("<tool_call>f<arg_key>city</arg_key><arg_value>Paris</arg_value>", KNOWN, [("f", {"city": "Paris"})]),
    ("<tool_call>now\n</tool_call>", KNOWN, [("now", {})]),
    (
        "<tool_call>f\n<arg_key>city</arg_key>\n<arg_value>\nPa\n\nris\n</arg_value>\n</tool_call>",
        KNOWN,
        [("f", {"city": "\nPa\n\nris\n"})],
    ),
    (
        "<tool_call>f<arg_key>opt</arg_key><arg_value>null</arg_value><arg_key>flag</arg_key><arg_value>false</arg_value></tool_call>",
        KNOWN,
        [("f", {"opt": None, "flag": False})],
    ),
    ("<tool_call>f<arg_key>city</arg_key><arg_value></arg_value></tool_call>", KNOWN, [("f", {"city": ""})]),
]
SEED: list[Row] = [
    (
        "<seed:tool_call>\n<function=f>\n<parameter=city>Paris</parameter>\n</function>\n</seed:tool_call>",
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    (
        "<seed:tool_call>\n<function=f>\n<parameter=note>a\nb\n</parameter>\n</function>\n</seed:tool_call>",
        KNOWN,
        [("f", {"note": "a\nb\n"})],
    ),
    (
        "<seed:tool_call>\n<function=f>\n<parameter=note>\na\nb\n</parameter>\n</function>\n</seed:tool_call>",
        KNOWN,
        [("f", {"note": "a\nb"})],
    ),
    ("<seed:tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n</function>\n</seed:tool_call>", KNOWN, [("f", {"n": 5})]),
    ("<seed:tool_call>\n<function=f>\n</function>\n</seed:tool_call>", KNOWN, [("f", {})]),
    (
        (
            "<seed:think>hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=city>Paris</parameter>\n"
            "</function>\n</seed:tool_call><seed:eos>"
        ),
        KNOWN,
        [("f", {"city": "Paris"})],
    ),
    (
        (
            "<seed:tool_call>\n<function=f>\n<parameter=note>x = 1\n</parameter>\n</function>\n</seed:tool_call>"
            "<seed:tool_call>\n<function=f>\n<parameter=city>Paris</parameter></function>\n</seed:tool_call>"
        ),
        KNOWN,
        [("f", {"note": "x = 1\n"}), ("f", {"city": "Paris"})],
    ),
]
MINIMAX: list[Row] = [
    (
        (
            '<minimax:tool_call>\n<invoke name="f">\n<parameter name="note">use <parameter name="x">'
            " here</parameter>\n</invoke>\n</minimax:tool_call>"
        ),
        {},
        [("f", {"note": 'use <parameter name="x"> here'})],
    ),
    (
        (
            '<minimax:tool_call>\n<invoke name="f">\n<parameter name="note">use <parameter name="city">'
            " here</parameter>\n</invoke>\n</minimax:tool_call>"
        ),
        KNOWN,
        [("f", {"note": 'use <parameter name="city"> here'})],
    ),
    (
        (
            '<minimax:tool_call>\n<invoke name="f">\n<parameter name="note">use <parameter name="x">y</parameter>'
            " here</parameter>\n</invoke>\n</minimax:tool_call>"
        ),
        {},
        [("f", {"note": 'use <parameter name="x">y</parameter> here'})],
    ),
    (
        (
            '<minimax:tool_call>\n<invoke name="f">\n<parameter name="note">a\n<parameter name="city">'
            "Paris</parameter>\n</invoke>\n</minimax:tool_call>"
        ),
        KNOWN,
        [("f", {"note": "a", "city": "Paris"})],
    ),
    (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="note">\n<a>1</a>\n</parameter>\n</invoke>\n</minimax:tool_call>',
        KNOWN,
        [("f", {"note": "<a>1</a>"})],
    ),
    ('<minimax:tool_call>\n<invoke name="f">\n</invoke>\n</minimax:tool_call>', KNOWN, [("f", {})]),
    (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="data">{"a": null, "b": [1]}</parameter></invoke>\n</minimax:tool_call>',
        KNOWN,
        [("f", {"data": {"a": None, "b": [1]}})],
    ),
    (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="note">a < b && c > d "q"</parameter></invoke>\n</minimax:tool_call>',
        KNOWN,
        [("f", {"note": 'a < b && c > d "q"'})],
    ),
]
WORDS = [
    '[TOOL_CALLS] is the marker {"a": 1}',
    "<tool_call>the tool <arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
    'The <|tool_call_begin|> token comes first: functions.f:0 then <|tool_call_argument_begin|>{"city": "x"}<|tool_call_end|>',
    '<|recipient|> goes to the tool\n<|content|>{"a": 1}',
    '✿FUNCTION✿: the name of the tool\n✿ARGS✿: {"city": "x"}',
    '<｜tool▁call▁begin｜>the type and then<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>',
    '[TOOL_CALLS] then the name [ARGS]{"a": 1}',
    "<|tool_call:begin|>id<|tool_call:name|>the name<|tool_call:args|>{}<|tool_call:end|>",
    "<|tool_call>call: the name{a:1}",
    "<tool_call>and\nso on</tool_call>",
    "<tool_call>search for it</tool_call>",
]


def rows(*families: list[Row]) -> list[Row]:
    return [row for family in families for row in family]


@pytest.mark.parametrize(("text", "tools", "meant"), rows(HARMONY, K2_HORIZON, HUNYUAN, GEMMA, BRACKETED))
def test_a_form_of_a_family_is_read(text: str, tools: dict[str, Any], meant: list[tuple[str, Any]]) -> None:
    """With and without known tools; text for the user is no call."""
    assert calls_in(read_text(text, tools)) == meant


@pytest.mark.parametrize(("text", "tools", "meant"), rows(LFM2, GLM, SEED, MINIMAX))
def test_a_value_is_read_as_the_family_writes_it(text: str, tools: dict[str, Any], meant: list[tuple[str, Any]]) -> None:
    """Line breaks, quotes, tags, sets and constants in values; an expression is no value."""
    assert calls_in(read_text(text, tools)) == meant


@pytest.mark.parametrize("text", WORDS)
def test_words_after_a_marker_are_not_the_name_of_a_tool(text: str) -> None:
    """A sentence about a marker calls nothing, whether or not tools are known."""
    for tools in (KNOWN, {}):
        assert read_text(text, tools).calls == ()


def test_a_message_to_the_user_is_shown() -> None:
    """Harmony names the recipient of every message; some are not tools."""
    assert read_text("<|start|>assistant to=user<|channel|>final<|message|>Hello", KNOWN).content == "Hello"
    assert read_text(" to=user<|message|>Hello", {}).content.strip() == "Hello"


def test_nested_sets_become_nested_lists() -> None:
    """Each level is parsed once, so deep nesting takes no more time than its length."""
    text = f"<|tool_call_start|>[f(data={'{' * 60}1{'}' * 60})]<|tool_call_end|>"
    assert calls_in(read_text(text, {})) == [("f", {"data": json.loads("[" * 60 + "1" + "]" * 60)})]


def test_a_list_with_anything_but_calls_makes_no_call() -> None:
    """A list comprehension of a known tool, at the start of a line."""
    assert read_text("[f(city=x) for x in cities]", KNOWN).calls == ()
    assert read_text('[f(city="Paris") for _ in cities]', KNOWN).calls == ()
    assert read_text('[f(city="Paris"), note]', {}).calls == ()


@pytest.mark.parametrize(
    "tokens", ["", "<|plamo:msg|>", "<|plamo:constrain|>json<|plamo:msg|>", "\n<|plamo:constrain|>json\n<|plamo:msg|>\n"]
)
@pytest.mark.parametrize(("arguments", "meant"), [('{"city": "Paris"}', {"city": "Paris"}), ("", {})])
def test_a_call_of_plamo_is_read_with_and_without_the_tokens_before_its_arguments(
    tokens: str, arguments: str, meant: dict[str, Any]
) -> None:
    token = "<|plamo:{}:plamo|>".format
    call = (
        f"{token('begin_tool_request')}{token('begin_tool_name')}f{token('end_tool_name')}"
        f"{token('begin_tool_arguments')}{tokens}{arguments}{token('end_tool_arguments')}{token('end_tool_request')}"
    )
    text = (
        f"{token('begin_think')}hm{token('end_think')}{token('begin_tool_requests')}{call}{call}{token('end_tool_requests')}<|plamo:tag|>"
    )
    reading = read_text(text, KNOWN)
    assert (calls_in(reading), reading.content, reading.reasoning) == ([("f", meant)] * 2, "", "hm")


@pytest.mark.parametrize("call", ["[TOOL_CALLS]now[ARGS]{}", '<tool_call>{"name": "now"}</tool_call>', "<function=now></function>"])
def test_a_word_that_begins_like_a_recipient_does_not_hide_the_call_after_it(call: str) -> None:
    """`to=` opens a call of GPT-OSS only in the header of a message."""
    reading = read_text(f"I pass it to=bob {call}", KNOWN)
    assert (calls_in(reading), reading.content) == ([("now", {})], "I pass it to=bob ")
    assert read_text("Hi to=functions.now there<|return|>", KNOWN).content == "Hi to=functions.now there"


M3 = "]<]minimax[>["
OTHER_FORMS = {
    "dots": '<dots_function_call>\n<invoke name="f">\n<parameter name="city">Paris</parameter>\n</invoke>\n</dots_function_call>',
    "dots with JSON": '<dots_function_call>\n{"name": "f", "arguments": {"city": "Paris"}}\n</dots_function_call>',
    "Step-Audio 2": '<tool_call>function\nf\n{"city": "Paris"}</tool_call>',
    "iQuest Q1": "<iquest_tool_call>f<arg_key>city</arg_key><arg_value>Paris</arg_value></iquest_tool_call>",
    "Step DeepResearch": (
        '<steptml:toolcall>\n<steptml:invoke name="f">\n<steptml:parameter name="city">Paris</steptml:parameter>\n</steptml:invoke>\n'
        "</steptml:toolcall>"
    ),
    "Hunyuan A13B's answer": '<answer><tool_calls>[{"name": "f", "arguments": {"city": "Paris"}}]</tool_calls></answer>',
    "MiniMax M2 with JSON": '<minimax:tool_call>\n{"name": "f", "arguments": {"city": "Paris"}}\n</minimax:tool_call>',
    "Seed-OSS with JSON": '<seed:tool_call>{"name": "f", "arguments": {"city": "Paris"}}</seed:tool_call>',
    "MiniMax M3 with named parameters": (
        f"{M3}<tool_call>\n{M3}<invoke name='f'>{M3}<parameter name='city'>Paris{M3}</parameter>{M3}</invoke>\n{M3}</tool_call>"
    ),
    "Gemma 4 with namespaces": '<|tool_call>call:google:mcp:f{city:<|"|>Paris<|"|>}<tool_call|>',
    "the name in a tag": '<tool_call>\n<function>f</function>\n{"city": "Paris"}\n</tool_call>',
    "name and arguments in tags": '<tool_use>\n<name>f</name>\n<arguments>\n{"city": "Paris"}\n</arguments>\n</tool_use>',
    "the tool's name and parameters in tags": '<tool_call><tool_name>f</tool_name><parameters>{"city": "Paris"}</parameters></tool_call>',
    "an angle bracket after the name": '<tool_call>f>{"city": "Paris"}</tool_call>',
}


@pytest.mark.parametrize("call", OTHER_FORMS.values(), ids=OTHER_FORMS.keys())
def test_the_forms_of_related_models_are_read(call: str) -> None:
    """Nothing of the markers stays in the text, and a part of a call is none."""
    reading = read_text(f"I look.\n{call}\n{call}", KNOWN)
    assert (calls_in(reading), reading.content) == ([("f", {"city": "Paris"})] * 2, "I look.\n")
    assert all(not read_text(call[:end], KNOWN, partial=True).calls for end in range(len(call) - len("</parameter></invoke>") - 30))
    assert read_text("<tool_call>function\nand that is all</tool_call>", KNOWN).calls == ()


@pytest.mark.parametrize("suffix", [":opensource", ":6124c78e"])
def test_a_call_in_the_reasoning_of_a_hunyuan_release_is_not_run(suffix: str) -> None:
    tags = {name: f"{name}{suffix}" for name in ("think", "tool_calls", "tool_call", "tool_sep")}
    call = "<{tool_calls}><{tool_call}>now<{tool_sep}></{tool_call}></{tool_calls}>".format(**tags)
    reading = read_text(f"<{tags['think']}>I could {call}</{tags['think']}>No.", KNOWN)
    assert (reading.calls, reading.content) == ((), "No.")
    assert calls_in(read_text(f"<{tags['think']}>hm</{tags['think']}>{call}", KNOWN)) == [("now", {})]


@pytest.mark.parametrize(
    "members",
    [
        '"name": "now", "name": "f", "arguments": {"city": "Paris"}',
        '"name": "f", "arguments": {"city": "Paris"}, "arguments": {"city": "Rome"}',
        '"name": "f", "arguments": {"city": "Paris"}, "name": "now"',
    ],
)
@pytest.mark.parametrize("form", ["<tool_call>{@}</tool_call>", "[TOOL_CALLS][{@}]", "{@}"])
def test_an_object_with_two_names_or_two_arguments_is_not_a_call(members: str, form: str) -> None:
    """Either may be meant, so nothing is run."""
    text = form.replace("@", members)
    reading = read_text(text, KNOWN)
    assert (reading.calls, reading.content) == ((), text)
