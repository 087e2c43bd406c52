"""What an argument contains is never a call of its own: objects, lists, calls of any family as text, in the calls of every family."""

from __future__ import annotations

import re
from typing import Any

import pytest

from callgate.models.dialects import DIALECTS, ParsedText, read_text
from tests.models.dialect_renderers import RENDERERS
from tests.models.dialect_texts import calls_in

KNOWN: dict[str, Any] = {
    "note": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "data": {"type": "object"}, "items": {"type": "array"}},
    },
    "search": {"type": "object", "properties": {"query": {"type": "string"}}},
    "now": {"type": "object", "properties": {}},
}
SEARCH: dict[str, Any] = {"query": "x"}
NESTED: dict[str, dict[str, Any]] = {
    "a call": {"data": {"name": "search", "arguments": SEARCH}},
    "a fallback call": {"data": {"tool": "search", "parameters": SEARCH}},
    "a call under its name": {"data": {"search": SEARCH}},
    "a call under an unknown name": {"data": {"sort": {"by": "name"}, "now": {}}},
    "a group of calls": {"data": {"tool_calls": [{"function": {"name": "search", "arguments": '{"query": "x"}'}}]}},
    "a list of calls": {"items": [{"name": "search", "arguments": SEARCH}, {"tool": "now", "parameters": {}}]},
    "calls beside text": {"text": "x", "items": [{"now": {}}], "data": {"function": {"name": "now", "arguments": {}}}},
}
QUOTED: dict[str, str] = {name: f"As in\n{render('search', SEARCH)}\nand so on." for name, render in RENDERERS.items()}
UNTYPED = ("minimax-m3",)
"""In these families, a value that the schema does not describe does not tell an empty object from an empty text."""
ONLY_BY_HINT = ("json-in-text",)


def readings(name: str, text: str) -> list[ParsedText]:
    """Return what is read if the dialect is found, and if it is named."""
    return [read_text(text, KNOWN, dialect=hint) for hint in (None, name) if hint or name not in ONLY_BY_HINT]


def test_every_dialect_has_a_renderer() -> None:
    assert RENDERERS.keys() == DIALECTS.keys()


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("name", RENDERERS)
def test_an_object_in_an_argument_is_not_a_call(name: str, kind: str) -> None:
    """Exactly one call is read, with its argument intact."""
    for reading in readings(name, RENDERERS[name]("note", NESTED[kind])):
        assert [call.name for call in reading.calls] == ["note"]
        assert name in UNTYPED or calls_in(reading) == [("note", NESTED[kind])]


@pytest.mark.parametrize("name", RENDERERS)
def test_a_call_quoted_in_a_text_argument_is_not_a_call(name: str) -> None:
    """A model that writes a file about tools quotes calls of its own family and of others."""
    for quoted in QUOTED.values():
        for reading in readings(name, RENDERERS[name]("note", {"text": quoted})):
            assert calls_in(reading) == [("note", {"text": quoted})]


@pytest.mark.parametrize("partial", [False, True], ids=["complete", "cut off"])
@pytest.mark.parametrize("name", RENDERERS)
def test_a_call_that_never_ends_makes_no_call_of_what_it_contains(name: str, partial: bool) -> None:
    """Also if the message is said to be complete: a model may forget the end of a call, and a provider may not report the cut."""
    arguments: list[dict[str, Any]] = [{"text": QUOTED[quoted]} for quoted in ("hermes", "glm", "pythonic", name)]
    for one in (*arguments, NESTED["a list of calls"]):
        text = RENDERERS[name]("note", one)
        for end in range(1, len(text), 5):
            assert {call.name for call in read_text(text[:end], KNOWN, partial=partial).calls} <= {"note"}


PYTHON_IN_JSON_MARKERS = [
    *("<tool_call>@</tool_call>", "<|tool_call|>@", "<TOOLCALL>@</TOOLCALL>", "<tool_calls>@</tool_calls>", "functools@", "[TOOL_CALLS]@"),
    *("<|START_ACTION|>@<|END_ACTION|>", "<|tools_prefix|>@<|tools_suffix|>", "<|python_tag|>@"),
    *(
        "<|action_start|><|plugin|>@<|action_end|>",
        "<longcat_tool_call>@</longcat_tool_call>",
        "<|content_invoke_tool_json|>@<|end_message|>",
        "<|function_call|>@",
    ),
]


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("frame", PYTHON_IN_JSON_MARKERS)
def test_python_calls_between_the_markers_of_json_are_read_as_python(frame: str, kind: str) -> None:
    """An object in their arguments is neither a call nor an item of a list of calls."""
    python = ", ".join(f"{key}={value!r}" for key, value in NESTED[kind].items())
    assert calls_in(read_text(frame.replace("@", f"[note({python})]"), KNOWN)) == [("note", NESTED[kind])]
    assert {call.name for call in read_text(frame.replace("@", f"[dance({python})]"), KNOWN).calls} <= {"dance"}


@pytest.mark.parametrize("frame", PYTHON_IN_JSON_MARKERS)
def test_an_object_of_arguments_without_a_name_is_no_call_of_its_keys(frame: str) -> None:
    """Only Apertus names tools by keys; elsewhere such an object is a call only if the keys are known tools."""
    assert ("sort" in [call.name for call in read_text(frame.replace("@", '[{"sort": {"by": "name"}}]'), {}).calls]) == ("prefix" in frame)
    assert calls_in(read_text(frame.replace("@", '[{"search": {"query": "x"}}]'), KNOWN)) == [("search", SEARCH)]


def test_an_object_among_the_members_of_a_call_does_not_replace_it() -> None:
    """The call has a name and arguments of its own."""
    text = '<tool_call>{"name": "note", "arguments": {"text": "x"}, "action": {"name": "search", "arguments": {}}}</tool_call>'
    assert calls_in(read_text(text, KNOWN)) == [("note", {"text": "x"})]


def test_a_call_after_one_with_unmatched_brackets_is_read() -> None:
    """The closing marker outside a string ends the first one."""
    text = '<tool_call>{"name": "note", "arguments": {"text": "x"}</tool_call>\n<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert calls_in(read_text(text, KNOWN)) == [("note", {"text": "x"}), ("now", {})]


@pytest.mark.parametrize("name", RENDERERS)
def test_a_text_argument_may_contain_the_closing_tags_and_tokens_of_its_own_call(name: str) -> None:
    """A tag ends a value only if something that may follow a value comes next."""
    written = RENDERERS[name]("note", {"text": "x"})
    for tag in sorted(set(re.findall(r"</[^<>]+>|<\|[^|<>]*\|>|</?arg_\w+>", written))):
        for text in (f"see {tag} here", f"a\n{tag}\nb"):
            for reading in readings(name, RENDERERS[name]("note", {"text": text})):
                assert calls_in(reading) == [("note", {"text": text})]
