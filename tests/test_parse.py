"""Parsing of calls: names, truncated messages, empty arguments, arguments in the wrong place, and repair if it is enabled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Limits
from callgate._json.json_repair import repair_text
from callgate._pipeline.parse import parse
from callgate.calls import RawCall
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated, CallAborted
from callgate.stage_types import ParsedCall

LIMITS = Limits()


def parsed(raw: RawCall, *, repair: bool = False) -> ParsedCall:
    return parse(raw, "r/0/0", LIMITS, repair=repair)


@pytest.mark.parametrize("name", ["", "  ", None, 5])
def test_a_call_without_a_name_aborts_its_message(name: Any) -> None:
    """Requirement A9."""
    with pytest.raises(CallAborted) as caught:
        parsed(RawCall(name=name))
    assert caught.value.status == "error"


@pytest.mark.parametrize("item", [{"function": "pay"}, {"function": None}])
@pytest.mark.parametrize("read", [RawCall.from_openai, RawCall.from_dict], ids=["openai", "dict"])
def test_an_item_that_is_not_a_call_aborts_like_a_call_without_a_name(read: Any, item: Any) -> None:
    """Requirement A9: a missing payload ends the message, and no other exception is raised."""
    with pytest.raises(CallAborted):
        parsed(read(item))


@pytest.mark.parametrize("item", [None, "pay", ["pay"], 5])
def test_json_that_is_not_a_call_aborts_like_a_call_without_a_name(item: Any) -> None:
    """Requirement A9, for JSON that a model has written."""
    with pytest.raises(CallAborted):
        parsed(RawCall.from_dict(item))


@pytest.mark.parametrize("more", [{}, {"id": "7"}, {"id": "7", "type": "function"}])
@pytest.mark.parametrize("form", [("name", "args"), ("name", "arguments"), ("tool", "parameters"), ("tool", "arguments")])
def test_every_form_of_a_call_is_parsed_to_the_same_call(form: tuple[str, str], more: dict[str, str]) -> None:
    name, arguments = form
    raw = RawCall.from_dict({name: "pay", arguments: {"amount": 1}, **more})
    assert (raw.name, parsed(raw).arguments, raw.id, raw.beside) == ("pay", {"amount": 1}, more.get("id", ""), None)


def test_a_flat_call_may_have_a_parameter_named_args() -> None:
    """In a flat call, `args` is a parameter like any other."""
    raw = RawCall.from_dict({"tool": "run", "args": ["-x"]})
    assert raw.beside == {"args": ["-x"]}


@pytest.mark.parametrize("arguments", [["x"], [], True, False, 5, 1.5])
def test_arguments_that_are_not_an_object_are_refused_as_not_object(arguments: object) -> None:
    """The code does not claim malformed JSON, because no JSON was sent."""
    for raw in (
        RawCall.from_openai({"function": {"name": "pay", "arguments": arguments}}),
        RawCall.from_dict({"tool": "pay", "parameters": arguments}),
    ):
        with pytest.raises(ArgumentsMalformed) as caught:
            parsed(raw)
        assert caught.value.code == "not_object"


def test_a_cut_off_call_is_refused_even_with_valid_arguments() -> None:
    """`cut` means that nothing proved the arguments complete. Valid text may still be only a part of them."""
    with pytest.raises(ArgumentsTruncated):
        parsed(RawCall(name="pay", arguments='{"amount":100}', closed="cut"), repair=True)


def test_valid_arguments_are_parsed_without_a_note() -> None:
    call = parsed(RawCall(name="t", arguments='{"a":1}'))
    assert call.arguments == {"a": 1}
    assert call.notes == ()
    assert call.uid == "r/0/0"


@pytest.mark.parametrize("arguments", ["", "null", b"", b" null", "\n"])
def test_empty_arguments_become_an_empty_object_with_a_note(arguments: str | bytes) -> None:
    """Requirement C2: the default is an empty object."""
    call = parsed(RawCall(name="t", arguments=arguments))
    assert call.arguments == {}
    assert [note.kind for note in call.notes] == ["empty"]


def test_an_explicit_empty_object_has_no_note() -> None:
    """The object was sent and not assumed."""
    assert parsed(RawCall(name="t", arguments="{}")).notes == ()
    assert parsed(RawCall(name="t", arguments={})).notes == ()


def test_parameters_beside_empty_arguments_are_lifted_with_a_note() -> None:
    """Requirements C3 and C4."""
    raw = RawCall.from_dict({"tool": "say", "reasoning": "why", "text": "hi", "volume": 3})
    call = parsed(raw)
    assert call.arguments == {"text": "hi", "volume": 3}
    assert [note.kind for note in call.notes] == ["lifted"]


def test_parameters_beside_nonempty_arguments_are_ignored() -> None:
    """Requirement C3 applies to empty parameters only."""
    raw = RawCall.from_dict({"tool": "say", "parameters": {"text": "hi"}, "stray": 1})
    assert parsed(raw).arguments == {"text": "hi"}


def test_malformed_json_is_refused_unless_repair_is_enabled() -> None:
    """Repair is off by default because it guesses what was meant."""
    raw = RawCall(name="t", arguments="{text:'hi', n: .5,}")
    with pytest.raises(ArgumentsMalformed) as caught:
        parsed(raw)
    assert caught.value.code == "invalid_json"
    call = parsed(raw, repair=True)
    assert call.arguments == {"text": "hi", "n": 0.5}
    assert [note.kind for note in call.notes] == ["json_repaired"]


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}{"b":2}',
        '{"a":1},{"b":2}',
        '{"a":1}, "b":2}',
        "{'a':1,'a':2}",
        'Sure! {"a":1}',
        "[1,2,]",
        '{"a":1,,"b":2}',
        '{"a":[1,,2]}',
        '{"a":1,"b":[2}',
        '{"a":"x',
        "{a:1",
        '{"a":NaN}',
        '{"a":}',
        '{"a":f("x")}',
        '{"cmd":"rm","note":"dir {x}',
        "{'a':'" + "x" * 20_000 + "'}",
    ],
    ids=lambda text: text[:24],
)
def test_repair_refuses_ambiguous_or_incomplete_text(text: str) -> None:
    """Repair merges no objects, drops no keys, removes no prose, accepts no lists, completes no text, and reads at most 16 KiB."""
    with pytest.raises((ArgumentsMalformed, ArgumentsTruncated)):
        parsed(RawCall(name="t", arguments=text), repair=True)


plain = st.text(alphabet="abc{}[],:'\"\\ \n\u2028é", max_size=6)
objects = st.dictionaries(plain, plain | st.integers() | st.booleans() | st.none() | st.lists(plain, max_size=3), max_size=4)


@given(objects)
def test_a_truncated_object_is_never_repaired(value: dict[str, object]) -> None:
    """Otherwise a call could run with a part of its arguments."""
    text = json.dumps(value)
    for end in range(1, len(text)):
        assert repair_text(text[:end], LIMITS) == (False, None)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.from_regex(r"[a-z ]{0,8}", fullmatch=True), min_size=1, max_size=4))
def test_single_quotes_and_a_trailing_comma_are_repaired_exactly(value: dict[str, str]) -> None:
    """Text that has only one meaning is repaired."""
    text = "{" + "".join(f"'{key}': '{item}', " for key, item in value.items()) + "}"
    assert repair_text(text, LIMITS) == (True, value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{key: value, "n": .5, k2: 2., ok: True, no: None}', {"key": "value", "n": 0.5, "k2": 2.0, "ok": True, "no": None}),
        ('{"a":1 "b":[1 "x",], /* c */ }', {"a": 1, "b": [1, "x"]}),
        ('```json\n{"a":1}\n```', {"a": 1}),
        ('{"a":[1,2,...]} // rest', {"a": [1, 2]}),
        ("{“a”: 'it\\'s \"b\"', n: 57ee-b1}", {"a": 'it\'s "b"', "n": "57ee-b1"}),
        ('{"a":"two\nlines"}', {"a": "two\nlines"}),
        ('{"a":"foo",b":"bar"}', {"a": "foo", "b": "bar"}),
    ],
)
def test_unambiguous_malformed_json_is_repaired(text: str, meant: dict[str, object]) -> None:
    """Quotes, constants, commas, comments, fences and raw line breaks are repaired."""
    assert repair_text(text, LIMITS) == (True, meant)
