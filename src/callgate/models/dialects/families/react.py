"""ReAct, as agents of many frameworks prompt it, and Command R+: an action, and its input.

    Thought: I need the weather.
    Action: get_weather
    Action Input: {"city": "Paris"}

Some write both in one line, `Action: search[Paris]`; Command R+ writes a fenced list behind `Action:`.
The tool has to exist. What the model makes up as the tool's observation is dropped by the reader, with all that follows it.

Source: the ReAct paper; the tool-use template of c4ai-command-r-plus.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.json_calls import normalise_arguments, read_json_calls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.parsed_parts import FoundCall
from callgate.models.dialects.python_calls import parse_python_arguments
from callgate.models.dialects.python_literals import python_to_json
from callgate.models.dialects.schema_matching import matches_schema, single_text_argument
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import json_type

__all__ = ["REACT"]

_BLANK = re.compile(r"[ \t]*")
_NUMBERS = ("", *(f" {number}" for number in range(1, 10)))
_FENCES = ("```json", "```", "`")
_INPUTS = (
    *(f"Action Input{number}:" for number in _NUMBERS),
    "Action Input :",
    "Action input:",
    "ACTION INPUT:",
    "action input:",
    "action_input:",
    "Input:",
    "**Action Input:**",
    "**Action Input**:",
)
_INLINE = re.compile(r"([\w.\-]+)\s*(?:\[(.*)\]|\((.*)\))")
_NO_TOOLS = frozenset({"none", "directly-answer", "directly_answer", "n/a", "final answer"})
_NO_INPUTS = frozenset({"", "none", "null", "n/a"})


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.take_while(_BLANK)
    if (yield from cursor.peek()) in ("\n", "[", "{") or (yield from cursor.at("```")):
        yield from _listed(cursor, tools)
        return
    line, mark = yield from cursor.read_until("\n", *_INPUTS, end=True)
    inline = _INLINE.fullmatch(line.strip())
    if inline is not None and mark not in _INPUTS and not tools.is_empty and tools.has(inline[1]):
        yield _inline(inline, tools)
        return
    name = line.strip("*`, \t\r")
    if name.lower() in _NO_TOOLS or len(name) > 400 or not tools.may_call(name):
        raise NotACall
    yield from cursor.skip_space()
    if mark not in _INPUTS:
        yield from cursor.expect(*_INPUTS)
    yield from cursor.skip_space()
    fence = yield from cursor.take(*_FENCES)
    yield from cursor.skip_space()
    arguments = yield from _input(cursor, tools, name)
    yield FoundCall(name=tools.clean_name(name), arguments=arguments)
    if fence:
        yield from cursor.skip_space()
        yield from cursor.take("```", "`")


def _input(cursor: TextCursor, tools: KnownTools, name: str) -> Incremental[str]:
    """The arguments. Bare text is the value of the only parameter, if that is text; nothing is enough for a tool that needs nothing."""
    if (yield from cursor.peek()) == "" or (yield from cursor.at("Observation:")):
        if cursor.truncated:
            raise NotACall
        return _bare("", tools, name)
    if (yield from cursor.peek()) == "{":
        text = yield from cursor.read_bracketed()
        return text if json_type(text) else _as_json(text)
    if (yield from cursor.peek()) == '"':
        line, _ = yield from cursor.read_until("\n", end=True)
        text = normalise_arguments(line.strip())
        if text.startswith("{"):
            return text
        bare = line.strip().strip('"')
    else:
        line, _ = yield from cursor.read_until("\n", end=True)
        bare = line.strip()
    return _bare(bare, tools, name)


def _bare(text: str, tools: KnownTools, name: str) -> str:
    """Bare text as arguments."""
    schema = tools.schema(name)
    arguments = single_text_argument(text, schema)
    if arguments is None and text.lower() in _NO_INPUTS and matches_schema("{}", schema):
        return "{}"
    if arguments is None:
        raise NotACall
    return arguments


def _inline(written: re.Match[str], tools: KnownTools) -> FoundCall:
    """A call in one line: text in square brackets, or what Python has in round ones."""
    name, bare, listed = written.groups()
    schema = tools.schema(name)
    if listed is not None:
        arguments: str | None = parse_python_arguments(name, listed, tools)
    else:
        arguments = single_text_argument(bare.strip(), schema) if bare.strip() else "{}"
    if arguments is None or not matches_schema(arguments, schema):
        raise NotACall
    return FoundCall(name=tools.clean_name(name), arguments=arguments)


def _as_json(text: str) -> str:
    """What a model wrote as Python writes it; what is neither, as it is."""
    try:
        return python_to_json(text)
    except ValueError:
        return text


def _listed(cursor: TextCursor, tools: KnownTools) -> ParsedCalls:
    yield from cursor.skip_space()
    yield from cursor.take(*_FENCES)
    yield from cursor.skip_space()
    if (yield from cursor.peek()) not in ("[", "{"):
        raise NotACall
    found = [
        call for call in (yield from read_json_calls(cursor, tools)) if call.name.lower() not in _NO_TOOLS and tools.may_call(call.name)
    ]
    if not found:
        raise NotACall
    yield from found
    yield from cursor.skip_space()
    yield from cursor.take("```")


REACT = Dialect(
    name="react",
    families="prompted models, Command R+",
    example='Action: get_weather\nAction Input: {"city": "Paris"}',
    openers=(*(f"Action{number}:" for number in _NUMBERS), "Action :", "ACTION:", "**Action:**", "**Action**:", "action:"),
    read=_read,
    bare=True,
)
