"""ReAct, as many agent frameworks prompt it, and Command R+: an action and its input.

    Thought: I need the weather.
    Action: get_weather
    Action Input: {"city": "Paris"}

Some write both on one line, `Action: search[Paris]`; Command R+ writes a fenced list after `Action:`.
The tool must be known. The reader drops an observation that the model invents, and everything after it.

Source: the ReAct paper; the tool-use template of c4ai-command-r-plus.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.json_calls import normalise_arguments
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marked_json import read_json_calls, read_rest
from callgate.models.dialects.python_calls import parse_python_arguments
from callgate.models.dialects.python_literals import python_to_json
from callgate.models.dialects.schema_matching import matches_schema, single_text_argument
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import json_type

__all__ = ["REACT"]

_LINE_SPACE = re.compile(r"[ \t]*")
_NUMBERS = ("", *(f" {number}" for number in range(1, 10)))
_FENCES = ("```json", "```", "`")
_INPUT_LABELS = (
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
_INLINE_CALL = re.compile(r"([\w.\-/]+)\s*(?:\[(.*)\]|\((.*)\))")
_NEXT_LABELS = ("Observation:", "\nObservation", "\nThought", "\nAction", "\nFinal Answer")
_LIST_ENDS = ("```", "\n", *_NEXT_LABELS)
_NO_TOOLS = frozenset({"none", "directly-answer", "directly_answer", "n/a", "final answer"})
_EMPTY_INPUTS = frozenset({"", "none", "null", "n/a"})


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.take_while(_LINE_SPACE)
    if (yield from cursor.peek()) in ("\n", "[", "{") or (yield from cursor.at("```")):
        yield from _read_list(cursor, tools)
        return
    line, marker = yield from cursor.read_until("\n", *_INPUT_LABELS, end=True)
    inline = _INLINE_CALL.fullmatch(line.strip())
    if inline is not None and marker not in _INPUT_LABELS and not tools.is_empty and tools.has(inline[1]):
        yield _parse_inline_call(inline, tools)
        return
    name = line.strip("*`, \t\r")
    if name.lower() in _NO_TOOLS or len(name) > 400 or not tools.may_call(name):
        raise NotACall
    yield from cursor.skip_space()
    if marker not in _INPUT_LABELS:
        yield from cursor.expect(*_INPUT_LABELS)
    yield from cursor.skip_space()
    fence = yield from cursor.take(*_FENCES)
    yield from cursor.skip_space()
    arguments = yield from _read_input(cursor, tools, name)
    yield FoundCall(name=tools.clean_name(name), arguments=arguments)
    if fence:
        yield from cursor.skip_space()
        yield from cursor.take("```", "`")


def _read_input(cursor: TextCursor, tools: KnownTools, name: str) -> Incremental[str]:
    """Read the arguments.

    Bare text is the value of the tool's only parameter, if that parameter accepts text. The input may be missing if the
    tool has no required parameters.
    """
    if (yield from cursor.peek()) == "" or (yield from cursor.at("Observation:")):
        if cursor.truncated:
            raise NotACall
        return _wrap_text("", tools, name)
    if (yield from cursor.peek()) == "{":
        text = yield from cursor.read_bracketed()
        text += yield from read_rest(cursor, (), _NEXT_LABELS)
        return text if json_type(text) else _convert_to_json(text)
    if (yield from cursor.peek()) == '"':
        line, _ = yield from cursor.read_until("\n", end=True)
        text = normalise_arguments(line.strip())
        if text.startswith("{"):
            return text
        bare = line.strip().strip('"')
    else:
        line, _ = yield from cursor.read_until("\n", end=True)
        bare = line.strip()
    return _wrap_text(bare, tools, name)


def _wrap_text(text: str, tools: KnownTools, name: str) -> str:
    """Return bare text as arguments."""
    schema = tools.schema(name)
    arguments = single_text_argument(text, schema)
    if arguments is None and text.lower() in _EMPTY_INPUTS and matches_schema("{}", schema):
        return "{}"
    if arguments is None:
        raise NotACall
    return arguments


def _parse_inline_call(written: re.Match[str], tools: KnownTools) -> FoundCall:
    """Return a call on one line: text in square brackets, or Python arguments in parentheses."""
    name, bare, listed = written.groups()
    schema = tools.schema(name)
    if listed is not None:
        arguments: str | None = parse_python_arguments(name, listed, tools)
    else:
        arguments = single_text_argument(bare.strip(), schema) if bare.strip() else "{}"
    if arguments is None or not matches_schema(arguments, schema):
        raise NotACall
    return FoundCall(name=tools.clean_name(name), arguments=arguments)


def _convert_to_json(text: str) -> str:
    """Return Python syntax as JSON, and any other text unchanged."""
    try:
        return python_to_json(text)
    except ValueError:
        return text


def _read_list(cursor: TextCursor, tools: KnownTools) -> ParsedCalls:
    yield from cursor.skip_space()
    yield from cursor.take(*_FENCES)
    yield from cursor.skip_space()
    if (yield from cursor.peek()) not in ("[", "{"):
        raise NotACall
    written = yield from read_json_calls(cursor, tools, stops=_LIST_ENDS)
    found = [call for call in written if call.name.lower() not in _NO_TOOLS and tools.may_call(call.name)]
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
    line_start_only=True,
)
