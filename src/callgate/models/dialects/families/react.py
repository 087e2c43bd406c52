"""ReAct, as agents of many frameworks prompt it, and Command R+: an action, and its input.

    Thought: I need the weather.
    Action: get_weather
    Action Input: {"city": "Paris"}

Command R+ writes a fenced list behind `Action:`. The tool has to exist. What the model makes up as the tool's observation is dropped by
the reader, with all that follows it.

Source: the ReAct paper; the tool-use template of c4ai-command-r-plus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.json_calls import argument_text, calls_of
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.python_values import python_to_json
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.typed import as_object, json_kind, quoted

__all__ = ["REACT"]

_BLANK = re.compile(r"[ \t]*")
_FENCES = ("```json", "```")
_INPUTS = ("Action Input:", "Action input:", "action_input:", "Input:", "**Action Input:**")
_NO_TOOLS = frozenset({"none", "directly-answer", "directly_answer", "n/a", "final answer"})


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.run(_BLANK)
    if (yield from cursor.peek()) in ("\n", "[") or (yield from cursor.at("```")):
        yield from _listed(cursor, tools)
        return
    line, _ = yield from cursor.until("\n", end=True)
    name = line.strip().strip("*` ")
    if name.lower() in _NO_TOOLS or len(name) > 400 or not tools.may_call(name):
        raise NoCall
    yield from cursor.white()
    yield from cursor.expect(*_INPUTS)
    yield from cursor.white()
    fence = yield from cursor.take(*_FENCES)
    yield from cursor.white()
    arguments = yield from _input(cursor, tools, name)
    yield Found(name=tools.written(name), arguments=arguments)
    if fence:
        yield from cursor.white()
        yield from cursor.take("```")


def _input(cursor: Cursor, tools: ToolNames, name: str) -> Wait[str]:
    """The arguments; bare text is the value of a tool's only parameter, if that is text."""
    if (yield from cursor.peek()) == "{":
        text = yield from cursor.value()
        return text if json_kind(text) else _as_json(text)
    if (yield from cursor.peek()) == '"':
        line, _ = yield from cursor.until("\n", end=True)
        text = argument_text(line.strip())
        if text.startswith("{"):
            return text
        bare = line.strip().strip('"')
    else:
        line, _ = yield from cursor.until("\n", end=True)
        bare = line.strip()
    schema = tools.schema(name)
    properties = schema.get("properties") if schema is not None else None
    if not isinstance(properties, Mapping) or len(properties) != 1 or not bare:
        raise NoCall
    ((key, inner),) = properties.items()
    if not isinstance(inner, Mapping) or inner.get("type") != "string":
        raise NoCall
    return as_object({key: quoted(bare)})


def _as_json(text: str) -> str:
    """What a model wrote as Python writes it; what is neither, as it is."""
    try:
        return python_to_json(text)
    except ValueError:
        return text


def _listed(cursor: Cursor, tools: ToolNames) -> Reads:
    yield from cursor.white()
    yield from cursor.take(*_FENCES)
    yield from cursor.white()
    if (yield from cursor.peek()) not in ("[", "{"):
        raise NoCall
    found = [call for call in (yield from calls_of(cursor, tools)) if call.name not in _NO_TOOLS and tools.may_call(call.name)]
    if not found:
        raise NoCall
    yield from found
    yield from cursor.white()
    yield from cursor.take("```")


REACT = Dialect(
    name="react",
    families="prompted models, Command R+",
    example='Action: get_weather\nAction Input: {"city": "Paris"}',
    openers=("Action:", "**Action:**"),
    read=_read,
    bare=True,
)
