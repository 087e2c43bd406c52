"""Repair of malformed JSON: each rule of the table, and that no rule ever gives another object than the one that was malformed."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callgate import Engine, Limits, RawCall, tool
from callgate._json.json_repair import repair_text
from tests.engine_calls import said
from tests.models.work_counter import is_linear, steps

LIMITS = Limits()
REFUSED = (False, None)
WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
WORDS = re.compile(r"[A-Za-z]+(?: [A-Za-z]+)+")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
CONSTANTS = {"true", "false", "null", "none", "nil", "nan", "inf", "infinity", "undefined"}
PYTHON = {"true": "True", "false": "False", "null": "None"}


class Piece(NamedTuple):
    """One token of a JSON text."""

    kind: str
    text: str
    value: object = None
    inside: str = "{"


def pieces(value: object, inside: str = "{") -> Iterator[Piece]:
    """Yield the tokens of `value` as JSON."""
    if isinstance(value, dict):
        yield Piece("open", "{")
        for number, (key, item) in enumerate(value.items()):
            if number:
                yield Piece("comma", ",", inside="{")
            yield Piece("key", json.dumps(key), key)
            yield Piece("colon", ":")
            yield from pieces(item, "{")
        yield Piece("close", "}")
    elif isinstance(value, list):
        yield Piece("open", "[")
        for number, item in enumerate(value):
            if number:
                yield Piece("comma", ",", inside="[")
            yield from pieces(item, "[")
        yield Piece("close", "]")
    else:
        kind = "string" if isinstance(value, str) else "constant" if value is None or isinstance(value, bool) else "number"
        yield Piece(kind, json.dumps(value), value, inside)


def body(text: str, quote: str) -> str:
    """Return the inside of a JSON string for other quotation marks."""
    return json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace(quote, f"\\{quote}")


def is_text(found: Piece, *kinds: str) -> bool:
    return found.kind in (kinds or ("key", "string"))


def curly(found: Piece, quotes: str) -> str | None:
    if not is_text(found) or any(quote in str(found.value) for quote in quotes):
        return None
    return quotes[0] + json.dumps(found.value, ensure_ascii=False)[1:-1] + quotes[1]


def bare_key(found: Piece) -> str | None:
    word = str(found.value)
    return word if found.kind == "key" and WORD.fullmatch(word) and (word.lower() not in CONSTANTS or word in PYTHON) else None


def bare_value(found: Piece) -> str | None:
    word = str(found.value)
    plain = DATE.fullmatch(word) or (WORD.fullmatch(word) and word.lower() not in CONSTANTS)
    return word if found.kind == "string" and plain else None


def bare_words(found: Piece) -> str | None:
    words = str(found.value)
    usable = found.kind == "string" and found.inside == "{" and WORDS.fullmatch(words)
    return words if usable and not CONSTANTS & set(words.lower().split()) else None


def short_number(found: Piece) -> str | None:
    if found.kind != "number" or not isinstance(found.value, float) or "e" in found.text:
        return None
    return found.text[:-1] if found.text.endswith(".0") else re.sub(r"^(-?)0\.", r"\1.", found.text)


OF_ONE_TOKEN: dict[str, Callable[[Piece], str | None]] = {
    "single quotes": lambda found: f"'{body(str(found.value), chr(39))}'" if is_text(found) else None,
    "curly quotes": lambda found: curly(found, "“”"),
    "single curly quotes": lambda found: curly(found, "\u2018\u2019"),
    "a key without quotes": bare_key,
    "a word or date without quotes": bare_value,
    "words without quotes": bare_words,
    "a constant of Python": lambda found: PYTHON.get(found.text) if found.kind == "constant" else None,
    "a number without a digit beside the point": short_number,
    "an escaped apostrophe": lambda found: found.text.replace("'", "\\'") if is_text(found) and "'" in found.text else None,
    "a raw line break": lambda found: found.text.replace("\\n", "\n") if is_text(found) and "\\\\" not in found.text else None,
    "a space for a comma": lambda found: " " if found.kind == "comma" else None,
    "a line break for a comma": lambda found: "\n" if found.kind == "comma" else None,
    "a comment before": lambda found: f'/* , "x" don\'t */{found.text}',
    "a line comment before": lambda found: f'// }}"["\n{found.text}',
    "a comment of Python before": lambda found: f"# ]'\n{found.text}",
    "a byte order mark before": lambda found: f"\ufeff{found.text}",
    "a zero-width space after": lambda found: f"{found.text}\u200b",
}
"""Each rule for one token: the malformed token, or None if the rule does not apply to it."""


def of_the_whole(value: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield each rule for more than one token, with each malformed text that it gives."""
    found = list(pieces(value))
    texts = [one.text for one in found]
    whole = "".join(texts)
    yield from (("an additional bracket", whole + more) for more in ("}", "]", "}}", " } ]\n"))
    closers = next((n for n, one in enumerate(reversed(found)) if one.kind != "close"), 0)
    yield "wrong brackets", whole[: len(whole) - closers] + "}" * closers
    yield "wrong brackets", whole[: len(whole) - closers] + whole[len(whole) - closers :][::-1]
    yield "two braces", f"{{{whole}}}"
    yield "an escaped object", json.dumps(whole)[1:-1]
    yield "a comma after it", whole + " ,"
    yield "a comma before the first key", "{," + whole[1:]
    yield from (
        ("a code fence", text) for text in (f"```json\n{whole}\n```", f"```{whole}```", f"{whole}\n```", f"{{```json\n{whole}\n```}}")
    )
    for number in range(1, len(found)):
        head, tail = "".join(texts[:number]), "".join(texts[number:])
        if found[number].kind == "close" and found[number - 1].kind != "open":
            yield "a comma after the last value", f"{head},{tail}"
            yield "an ellipsis after the last value", f"{head}, ...{tail}"
        if (
            found[number - 1].kind == "comma"
            and found[number].kind == "key"
            and re.fullmatch(r"[\w$.-]+", str(found[number].value), re.ASCII)
        ):
            yield "a key without its first quotation mark", head + tail[1:]


def malformed(value: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield every text that one malformation of the table makes of `value`, with the name of the rule."""
    found = list(pieces(value))
    texts = [one.text for one in found]
    for (name, rule), (number, one) in itertools.product(OF_ONE_TOKEN.items(), enumerate(found)):
        changed = rule(one)
        if changed is not None:
            yield name, "".join([*texts[:number], changed, *texts[number + 1 :]])
    yield from of_the_whole(value)


def repaired(text: str) -> object:
    """Return the object that a call would run with, or None. A list of several objects is refused as arguments."""
    certain, value = repair_text(text, LIMITS)
    return value if certain and isinstance(value, dict) else None


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


fragments = st.sampled_from(
    [
        "\u2018",
        "\u2019",
        *"ab \"'“”{}[],:\\\n/#.+-01e\u200b\ufeff",
        "x",
        "true",
        "None",
        "New York",
        "2026-11-23",
        "...",
        "```",
        "//",
        "/*",
        '", "',
        '": "',
        "1e",
        "it's",
    ]
)
texts = st.lists(fragments, max_size=4).map("".join)
scalars = texts | st.integers(-99, 99) | st.sampled_from([0.5, 2.0, -0.25, 1e300]) | st.booleans() | st.none()
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6)
objects = st.dictionaries(texts, values, max_size=3)


@settings(max_examples=40)
@given(objects)
@example({"a": 'x, "b', "c": ["x", "y"]})
@example({"a": [{"b": [1]}], "c": "it's"})
def test_one_malformation_is_repaired_to_the_object_that_it_changed_or_refused(value: dict[str, object]) -> None:
    """Every rule of the table, at every place of the object where it applies."""
    for name, text in malformed(value):
        got = repaired(text)
        assert got in (None, value) or is_json(text), (name, text, got)


def test_a_text_that_two_objects_can_become_is_refused() -> None:
    """All objects of a small set, with all malformations: no text is given the meaning of one of several objects."""
    parts = ["", "x", "x y", '"', "'", ":", "}", "1e", "\\", "x, "]
    small: list[dict[str, object]] = [
        {key: one} for key in ("a", "x y", '"') for one in [*parts, ",", "//", "True", "1", "...", '", "', 1, 0.5, True, None]
    ]
    small += [{"a": [one, other]} for one, other in itertools.product([*parts, 1], repeat=2)]
    small += [{"a": one, "x": other} for one, other in itertools.product(parts[:6], repeat=2)]
    meanings: dict[str, list[dict[str, object]]] = {}
    for value in small:
        for _, text in malformed(value):
            if not is_json(text) and value not in (known := meanings.setdefault(text, [])):
                known.append(value)
    repaired = 0
    for text, known in meanings.items():
        got = repair_text(text, LIMITS)
        assert got == REFUSED or (len(known) == 1 and got == (True, known[0])), (text, known, got)
        repaired += got != REFUSED
    assert repaired > len(meanings) / 2


@settings(max_examples=40)
@given(objects)
def test_the_beginning_of_a_malformed_object_is_never_repaired(value: dict[str, object]) -> None:
    """A text is complete only when its last bracket is there, however it is written before it."""
    whole = "".join(one.text for one in pieces(value))
    for end in range(1, len(whole)):
        assert repair_text(whole[:end], LIMITS) == REFUSED


plain = st.text(alphabet="abc{}[] \\\n/é1", max_size=5)


def damaged(value: dict[str, object]) -> Iterator[str]:
    """Yield texts in which something is missing that cannot be known: a quotation mark, a bracket, a colon or an escape."""
    found = list(pieces(value))
    texts = [one.text for one in found]
    for number, one in enumerate(found):
        parts: list[str] = []
        if one.kind in ("key", "string"):
            parts += [one.text[:-1]] if str(one.value)[:1].isspace() else [one.text[1:], one.text[:-1]]
        if one.kind == "string":
            parts.append(f'"{one.text[1:-1]}"x"{one.text[1:-1]}"')
        if one.kind in ("colon", "open"):
            parts.append("")
        for part in parts:
            yield "".join([*texts[:number], part, *texts[number + 1 :]])


@given(st.dictionaries(plain, plain | st.integers(0, 9) | st.lists(plain, max_size=3), max_size=3))
@example({"a": "x, ", "b": 1})
@example({"a": ["x, ", "y", "z"]})
def test_a_missing_quotation_mark_bracket_or_colon_is_never_guessed(value: dict[str, object]) -> None:
    """The original object, or nothing: a value never takes a part of another one."""
    for text in damaged(value):
        got = repaired(text)
        assert got in (None, value) or is_json(text), (text, got)


@tool(effect="none")
async def book(day: str, seats: int = 1) -> dict[str, object]:
    """Book seats."""
    return {"day": day, "seats": seats}


@pytest.mark.parametrize(
    "text",
    [
        r"{\"day\": \"2026-11-23\", \"seats\": 2}",
        '"{\\"day\\": \\"2026-11-23\\", \\"seats\\": 2}"',
        "{day: 2026-11-23, seats: 2}}",
    ],
    ids=["escaped", "in a string", "unquoted"],
)
async def test_a_repaired_call_runs_with_a_note_only_if_the_host_enabled_repair(text: str) -> None:
    """Repair is off by default. A JSON string that contains an object is repaired, too."""
    async with Engine([book]) as engine:
        assert (await said(engine, RawCall(name="book", arguments=text))).code in ("invalid_json", "not_object")
    async with Engine([book], repair=True) as engine:
        result = await said(engine, RawCall(name="book", arguments=text))
    assert result.structured == {"day": "2026-11-23", "seats": 2}
    assert [note.kind for note in result.metadata.notes] == ["json_repaired"]


@pytest.mark.parametrize("text", ["\"{'a': 1}\"", '"[1]"', '"day"', "5", "[]", '""'])
async def test_a_json_value_that_is_no_object_is_not_repaired_to_one(text: str) -> None:
    async with Engine([book], repair=True) as engine:
        assert (await said(engine, RawCall(name="book", arguments=text))).code == "not_object"


SHAPES: dict[str, Callable[[int], str]] = {
    "nested": lambda n: "{a:" + "[{a:" * n,
    "closed too often": lambda n: "{a:1" + "}" * n,
    "words": lambda n: "{a:" + "x " * n + "}",
    "values without commas": lambda n: "{'a':[" + '1 "x"\n' * n + "]}",
    "quotation marks": lambda n: '{"a":' + '"' * n,
    "escaped": lambda n: '{\\"a\\":[' + '\\"x\\",' * n + "1]}",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_work_of_a_repair_grows_with_the_size_of_the_text(shape: Callable[[int], str]) -> None:
    """No token is looked at again and again."""
    assert is_linear(lambda n: steps(lambda: repair_text(shape(n), LIMITS)), 100)


def documented(first: str) -> list[list[str]]:
    """Return the rows of the documented table whose first column has this heading, each as the code in its first two columns."""
    text = Path(__file__).parents[1].joinpath("docs/reference/malformed-calls.md").read_text(encoding="utf-8")
    rows = text.split(f"| {first} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [re.findall(r"`([^`]+)`", row)[:2] for row in rows]


def test_every_documented_malformation_is_read_or_refused_as_the_page_says() -> None:
    repairs, refusals = documented("malformed"), documented("refused")
    assert len(repairs) > 20
    assert len(refusals) > 10
    for text, meant in repairs:
        assert repair_text(text, LIMITS) == (True, json.loads(meant)), text
    for text, *_ in refusals:
        assert repaired(text) is None, text
