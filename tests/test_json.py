"""JSON: what the parser accepts, what it refuses and why, and how results of tools are converted."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import re
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callgate import Limits
from callgate._json import decode, ends_inside, strict_object, text_if_small, to_jsonable
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated, CallFailed, ResultNotSerializable
from tests.canonical_json import canonical

LIMITS = Limits()

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12)
objects = st.dictionaries(st.text(), values, max_size=5)


def refusal(text: Any, limits: Limits = LIMITS) -> CallFailed:
    with pytest.raises((ArgumentsMalformed, ArgumentsTruncated)) as caught:
        strict_object(text, limits)
    assert len(str(caught.value)) <= 1024
    assert canonical(str(caught.value))
    return caught.value


@given(objects, st.booleans())
def test_every_json_object_is_read_exactly(value: dict[str, Any], ascii_only: bool) -> None:
    """RFC 8259: numbers are exact and keys unchanged, with or without escapes, as text and as bytes."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert strict_object(text, LIMITS) == value
    assert strict_object(text.encode(), LIMITS) == value
    assert strict_object(value, LIMITS) == value


@given(objects)
def test_the_canonical_form_ignores_key_order_and_decodes_to_the_same_value(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical(backwards) == canonical(value)
    assert decode(canonical(value)) == value


@given(objects, st.data())
def test_an_object_with_a_duplicate_key_is_refused(value: dict[str, Any], data: st.DataObject) -> None:
    """Duplicates are refused at any depth and in any spelling, because it is unclear which value is meant."""
    key = data.draw(st.text(max_size=8))
    spelt = data.draw(st.sampled_from([json.dumps(key), json.dumps(key, ensure_ascii=False), escaped(key)]))
    members = [f"{json.dumps(name)}:{json.dumps(inner)}" for name, inner in value.items()]
    first, second = json.dumps(data.draw(values)), json.dumps(data.draw(values))
    place = data.draw(st.integers(0, len(members)))
    members[place:place] = [f"{json.dumps(key)}:{first}", f"{spelt}:{second}"]
    inside = "{" + ",".join(members) + "}"
    for text in (inside, '{"a:b":[1,' + inside + "]}"):
        assert refusal(text).code == "duplicate_key"


def escaped(key: str) -> str:
    return '"' + "".join(f"\\u{unit:04x}" for letter in key for unit in units(letter)) + '"'


def units(letter: str) -> list[int]:
    raw = letter.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[index : index + 2], "big") for index in range(0, len(raw), 2)]


@given(objects.filter(bool))
def test_every_prefix_of_an_object_is_refused(value: dict[str, Any]) -> None:
    """Truncated arguments are never read as an object."""
    text = json.dumps(value, ensure_ascii=False)
    for end in range(1, len(text)):
        assert refusal(text[:end]).code == "truncated"


@pytest.mark.parametrize("text", ["", " \r\n\t", "null", b"", b"null", " null "])
def test_empty_text_and_null_are_read_as_an_empty_object(text: str | bytes) -> None:
    """Several providers send an empty string, or null, for a tool without parameters."""
    assert strict_object(text, LIMITS) == {}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[1]", "not_object"),
        ('"a"', "not_object"),
        ("true", "not_object"),
        ("42", "not_object"),
        ('{"a":1} {"b":2}', "invalid_json"),
        ("{'a':1}", "invalid_json"),
        ("\ufeff{}", "invalid_json"),
        ('{"a":1}\x0b', "invalid_json"),
        ('{"a":NaN}', "bad_number"),
        ('{"a":-Infinity}', "bad_number"),
        ('{"a":1e999}', "bad_number"),
        ('{"a":"NaN",}', "invalid_json"),
        ('{"a":' + "9" * 5000 + "}", "bad_number"),
        ('{"a":18446744073709551616}', "bad_number"),
        ('{"a":[-9223372036854775809]}', "bad_number"),
        ('{"a":"\\ud800"}', "bad_unicode"),
        ('{"\\udc00":1}', "bad_unicode"),
        ('{"a":"\ud800"}', "bad_unicode"),
        (b'{"a":"\xc0\xaf"}', "bad_unicode"),
        (b'{"a":"\xed\xa0\x80"}', "bad_unicode"),
        ('{"a":' + "[" * 64 + "]" * 64 + "}", "too_deep"),
        ("[" * 100_000 + "]" * 100_000, "too_deep"),
        ('{"a":"' + "x" * 1_048_576 + '"}', "too_large"),
        ('{"a":"' + "€" * 400_000 + '"}', "too_large"),
        ('{"' + "k" * 1_500_000 + '":1}', "too_large"),
        ("{" + ",".join(f'"{n}":0' for n in range(20_001)) + "}", "too_large"),
        ('{"' + "k" * 5_000 + '":1,"' + "k" * 5_000 + '":1}', "duplicate_key"),
    ],
    ids=lambda value: str(value)[:24].encode("ascii", "backslashreplace").decode(),
)
def test_refused_arguments_have_the_code_of_the_violated_rule(text: str | bytes, code: str) -> None:
    """The codes are stable, and the messages are bounded and can be encoded."""
    assert refusal(text).code == code


def test_values_exactly_at_the_limits_are_accepted() -> None:
    """A depth of 64 and the ends of the integer range are valid."""
    assert strict_object('{"a":' + "[" * 63 + "]" * 63 + "}", LIMITS)
    assert strict_object('{"a":-9223372036854775808,"b":18446744073709551615}', LIMITS) == {"a": -(2**63), "b": 2**64 - 1}


class Fighting(dict[str, object]):
    def __iter__(self) -> Any:
        raise RuntimeError("no")


def cycle() -> dict[str, object]:
    inner: list[object] = []
    inner.append(inner)
    return {"a": inner}


@pytest.mark.parametrize(
    ("mapping", "code"),
    [
        ({1: 2}, "invalid_json"),
        ({"a": object()}, "invalid_json"),
        ({"a": {1, 2}}, "invalid_json"),
        ({"a": b"x"}, "invalid_json"),
        (Fighting(), "invalid_json"),
        (5, "invalid_json"),
        ({"a": float("nan")}, "bad_number"),
        ({"a": 2**64}, "bad_number"),
        ({"a": "\ud800"}, "bad_unicode"),
        ({"\ud800": 1}, "bad_unicode"),
        (cycle(), "too_deep"),
        ({"a": ["x" * 1000] * 2000}, "too_large"),
        ({str(n): n for n in range(20_001)}, "too_large"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_arguments_mapping_follows_the_same_rules_as_json_text(mapping: Any, code: str) -> None:
    """Python values do not bypass the rules for text."""
    assert refusal(mapping).code == code


def test_an_arguments_mapping_is_copied_deeply() -> None:
    """A later change by the host does not change the accepted call."""
    inner = {"b": [1, (2, 3)]}
    taken = strict_object({"a": inner}, LIMITS)
    inner["b"].append(9)
    assert taken == {"a": {"b": [1, [2, 3]]}}


_VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.just(b"x"), st.lists(st.integers()))


def accepted(source: Any) -> object:
    """Return the accepted arguments in their order, or the code of the refusal."""
    try:
        return [(key, repr(value)) for key, value in strict_object(source, LIMITS).items()]
    except ArgumentsMalformed as error:
        return error.code


@given(st.dictionaries(st.one_of(st.text(max_size=9), st.integers()), _VALUES))
@example({"a": "\ud800"})
@example({"a": float("nan")})
@example({"a": 1.0, "b": -0.0, "c": True})
@example({"a": "x" * 5000})
def test_the_text_of_a_small_mapping_is_accepted_or_refused_as_the_mapping_is(mapping: Any) -> None:
    assert accepted(text_if_small(mapping)) == accepted(mapping)


@given(st.text(alphabet='{}[]",\\a:', max_size=30))
def test_ends_inside_agrees_with_a_character_by_character_reference(text: str) -> None:
    """A bracket inside a string does not count, and an escaped quote does not end a string."""
    depth, inside, escape = 0, False, False
    for letter in text:
        if inside:
            inside = escape or letter != '"'
            escape = not escape and letter == "\\"
        elif letter == '"':
            inside, escape = True, False
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth = max(0, depth - 1)
    assert ends_inside(text) is (inside or depth > 0)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date


class Tagged(msgspec.Struct, rename="camel", tag="t"):
    some_name: set[int]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, [2, (3,)]), [1, [2, [3]]]),
        ({"a": {3, 1, 2}}, {"a": [1, 2, 3]}),
        (frozenset(["b", "a"]), ["a", "b"]),
        (b"ab", "YWI="),
        (bytearray(b"ab"), "YWI="),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02T03:04:05"),
        (datetime.timedelta(seconds=90), "PT90S"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("/a"), "/a"),
        (Colour.RED, "red"),
        (Point(1, datetime.date(2024, 1, 2)), {"x": 1, "when": "2024-01-02"}),
        (Tagged({2, 1}), {"type": "t", "someName": [1, 2]}),
        ({1: "a"}, {"1": "a"}),
        ("\ud800x", "\ufffdx"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_python_value_with_one_json_form_is_converted_with_a_note(value: object, expected: object) -> None:
    """No conversion is silent."""
    made, notes = to_jsonable(value)
    assert made == expected
    assert notes


@given(values)
def test_a_json_result_is_returned_unchanged_and_without_notes(value: Any) -> None:
    assert to_jsonable(value) == (value, ())


@pytest.mark.parametrize("value", [2**53 + 1, 2**70, "", None, True, -(2**80)], ids=str)
def test_large_integers_and_empty_values_are_converted_exactly(value: object) -> None:
    """Large integers are neither wrapped nor rounded, and the empty string is a result."""
    assert to_jsonable(value) == (value, ())
    assert json.loads(canonical(value)) == value


class FightingItems(dict[str, object]):
    def items(self) -> Any:
        raise RuntimeError("x")


def deep(levels: int) -> object:
    value: object = {}
    for _ in range(levels):
        value = {"k": value}
    return value


def doubling() -> object:
    value: object = [1]
    for _ in range(100):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"m": [1.0, float("inf")]}, ".m[1]"),
        (decimal.Decimal("NaN"), "NaN"),
        (object(), "object"),
        ({"a": [object()]}, ".a[0]"),
        ({None: 1, "null": 2}, "NoneType"),
        ({1: 1, "1": 2}, "alike"),
        ({True: 1}, "bool"),
        ({(1, 2): 3}, "tuple"),
        ({"\udfff": 1}, "surrogate"),
        (cycle(), "contains itself"),
        (deep(5000), "levels"),
        (doubling(), "levels|values"),
        (FightingItems(a=1), "FightingItems"),
        (10**5000, "integer"),
        ((n for n in range(3)), "generator"),
        (int, "type"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_non_json_result_is_refused_with_its_path_or_type(value: object, words: str) -> None:
    """The message is for the tool's author and contains no `repr` with an address."""
    with pytest.raises(ResultNotSerializable, match="result") as caught:
        to_jsonable(value)
    text = str(caught.value)
    assert any(word in text for word in words.split("|"))
    assert "0x" not in text
    assert len(text) <= 1024


def test_a_result_is_refused_by_its_encoded_size_and_not_its_size_in_memory() -> None:
    """One string that is listed 200,000 times takes little memory, but 200 MB as JSON."""
    with pytest.raises(ResultNotSerializable) as caught:
        to_jsonable(["x" * 1000] * 200_000)
    assert caught.value.code == "output_too_large"


async def test_a_coroutine_result_is_closed_and_reported_as_never_awaited() -> None:
    """Closing the coroutine prevents a `RuntimeWarning`."""

    async def forgotten() -> int:
        return 1

    with pytest.raises(ResultNotSerializable, match="never awaited"):
        to_jsonable(forgotten())


@given(st.text(st.sampled_from("a?\ufffd\ud800\udfff\x01\x02\x03\ufdd0\ufdd1é😀")))
def test_lone_surrogates_in_a_result_are_replaced_and_other_text_is_unchanged(text: str) -> None:
    made, notes = to_jsonable(text + "\ud800")
    assert made == "".join("\ufffd" if "\ud800" <= mark <= "\udfff" else mark for mark in text) + "\ufffd"
    assert len(notes) == 1


def test_surrogates_in_a_large_text_are_not_replaced_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder replaces them much faster. They are replaced one by one only if the text contains every stand-in character."""
    marks: list[str] = []

    class Counting:
        def sub(self, new: str, old: str) -> str:
            marks.extend(re.findall("[\ud800-\udfff]", old))
            return re.sub("[\ud800-\udfff]", new, old)

    monkeypatch.setattr("callgate._json.malformed_text.SURROGATE", Counting())
    assert to_jsonable("a\ud800?" * 10_000)[0] == "a\ufffd?" * 10_000
    assert marks == []
    to_jsonable("\x01\x02\x03\ufdd0\ufdd1\ud800")
    assert marks == ["\ud800"]
