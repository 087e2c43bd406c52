"""Calls written as JSON: which members of an object are the name, the arguments and the rest.

The arguments come out exactly as they were read, digits and doubled keys included: judging them is for whoever runs the call. So the
places of members are found in the text, and only the name is decoded. Linear in the text's length. Knows no markers: dialects do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from callgate.models.dialects.dialect import ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.parsed_parts import FoundCall
from callgate.models.dialects.python_literals import python_to_json
from callgate.models.dialects.schema_matching import single_text_argument
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import json_object

__all__ = [
    "ARGUMENT_KEYS",
    "NAME_KEYS",
    "JsonCall",
    "MarkedJson",
    "list_items",
    "may_start_call",
    "member_spans",
    "normalise_arguments",
    "parse_call",
    "parse_unmarked_calls",
    "read_json_calls",
]

NAME_KEYS = ("name", "tool_name", "tool", "function_name", "function", "action", "recipient_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input", "action_input", "tool_input", "kwargs", "tool_arguments")
_ID_KEYS = ("id", "tool_call_id", "call_id")
_WHY_KEYS = ("reasoning", "thought", "thoughts")
_OTHER_KEYS = frozenset({"type", "index"})
_CALL_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, *_ID_KEYS, *_WHY_KEYS, *_OTHER_KEYS})
_GROUP_KEYS = ("tool_calls", "tool_call", "function_calls", "function_call", "functionCall", "tool_uses")
_NESTING_KEYS = ("function", "tool", "action")
_ROLE_KEY = "role"
_MESSAGE_KEYS = frozenset({_ROLE_KEY, "content"})
_SURE_NAMES = ("name", "tool_name", "tool", "function")
_SURE_ARGUMENTS = ("arguments", "parameters")
_TAUGHT_KEYS = frozenset({"tool", "reasoning", *_SURE_ARGUMENTS})
_INPUT_KEYS = ("input", "action_input", "tool_input")
_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_KEY = re.compile(r"""\s*(["'])([^"'\\]{1,64})\1\s*(?::\s*("[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*')?)?""", re.DOTALL)
_BARE = re.compile(r"[^\s,\]}\[{\"':]+")
_STRAY = re.compile(r"[\s;,\]}]*")
_FENCES = ("```json", "```")
_NEXT = re.compile(r'[\[\]{}"]')


class JsonCall(Struct, frozen=True, kw_only=True):
    """What an object says as a call."""

    name: str
    arguments: str
    id: str = ""
    reasoning: str = ""
    alien: bool = False
    """Whether it has members that no call has."""
    sure: bool = False
    """Whether its members are those that hardly anything but a call has."""
    beside: str = ""
    """As the fallback format has them: what stands beside parameters that are empty or missing, as an object."""
    lifted: bool = False
    """Whether that was taken for the arguments."""
    worded: bool = False
    """Whether its arguments are what agents call an input, which may be bare text."""
    taught: bool = False
    """Whether it has the form of the fallback: the name of a `tool`, and its parameters."""

    def found(self, tools: KnownTools) -> FoundCall:
        arguments = self.arguments
        if self.worded and arguments[:1] == '"':
            arguments = single_text_argument(_string(arguments), tools.schema(self.name)) or arguments
        name = tools.clean_name(self.name)
        return FoundCall(name=name, arguments=arguments, id=self.id, reasoning=self.reasoning, lifted=self.lifted)


def member_spans(text: str) -> dict[str, tuple[int, int]]:
    """Where the values of an object's members stand; the first of two equal keys. Nothing if `text` is no object."""
    found: dict[str, tuple[int, int]] = {}
    pos = _skip(text, 1)
    while text[:1] == "{" and pos < len(text) and text[pos] == '"':
        key = _STRING.match(text, pos)
        colon = _skip(text, key.end()) if key else len(text)
        if key is None or text[colon : colon + 1] != ":":
            return {}
        start = _skip(text, colon + 1)
        end = _value_end(text, start)
        if end <= start:
            return {}
        found.setdefault(_string(key.group()), (start, end))
        pos = _skip(text, end)
        if text[pos : pos + 1] != ",":
            break
        pos = _skip(text, pos + 1)
    return found if pos < len(text) and text[pos] == "}" else {}


def _skip(text: str, pos: int) -> int:
    found = _SPACE.match(text, pos)
    return found.end() if found else pos


def _value_end(text: str, pos: int) -> int:
    """Where the JSON value that starts at `pos` ends; `pos` if none starts there."""
    if text[pos : pos + 1] not in ("{", "["):
        found = _STRING.match(text, pos) or _BARE.match(text, pos)
        return found.end() if found else pos
    depth = 0
    at = pos
    while True:
        mark = _NEXT.search(text, at)
        if mark is None:
            return pos
        if mark.group() == '"':
            string = _STRING.match(text, mark.start())
            if string is None:
                return pos
            at = string.end()
            continue
        depth += 1 if mark.group() in "[{" else -1
        at = mark.end()
        if depth == 0:
            return at


def _string(text: str) -> str:
    """The string that a JSON string is; its inside as it stands if it is none."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text.strip("\"'")
    return value if isinstance(value, str) else text.strip("\"'")


def parse_call(text: str) -> JsonCall | None:
    """The call that an object says, or the object that is its member for a name; None if it names nothing."""
    spans = member_spans(text)
    if not spans:
        return _python_call(text)
    held = (_of(text, spans, key) for key in _NESTING_KEYS if key in spans)
    inner = next((one for one in held if one.startswith("{")), "")
    if not inner:
        return _call(text, spans)
    call = _call(inner, member_spans(inner))
    return call if call is None or call.id else replace(call, id=_first(text, spans, _ID_KEYS))


def _call(text: str, spans: dict[str, tuple[int, int]]) -> JsonCall | None:
    name_key = next((key for key in NAME_KEYS if key in spans and _of(text, spans, key).startswith('"')), None)
    if name_key is None:
        return None
    name = _of(text, spans, name_key)
    key = next((key for key in ARGUMENT_KEYS if key in spans), None)
    arguments = normalise_arguments(_of(text, spans, key)) if key else ""
    return JsonCall(
        name=_string(name),
        arguments=arguments,
        id=_first(text, spans, _ID_KEYS),
        reasoning=_first(text, spans, _WHY_KEYS),
        alien=not _CALL_KEYS.issuperset(spans),
        sure=name_key in _SURE_NAMES and key in _SURE_ARGUMENTS,
        beside=_rest(text) if name_key == "tool" and arguments in ("", "{}") else "",
        worded=key in _INPUT_KEYS,
        taught=name_key == "tool" and key in _SURE_ARGUMENTS and _TAUGHT_KEYS.issuperset(spans),
    )


def _of(text: str, spans: dict[str, tuple[int, int]], key: str) -> str:
    start, end = spans[key]
    return text[start:end]


def _first(text: str, spans: dict[str, tuple[int, int]], keys: tuple[str, ...]) -> str:
    """The first of these members that there is, as text."""
    return next((_string(_of(text, spans, key)) for key in keys if key in spans), "")


def _python_call(text: str) -> JsonCall | None:
    """The same for an object in Python's words."""
    try:
        written = python_to_json(text)
    except ValueError:
        return None
    return parse_call(written) if written != text and member_spans(written) else None


def normalise_arguments(text: str) -> str:
    """Arguments as the text of an object: `null` and nothing are `{}`, and JSON in a string is what the string holds."""
    if text in ("null", "", '""'):
        return "{}"
    if text.startswith('"'):
        inner = _string(text).strip()
        return inner if inner.startswith("{") else text
    return text


def list_items(text: str) -> list[str]:
    """The values of a list, as they stand."""
    found: list[str] = []
    pos = _skip(text, 1)
    while pos < len(text) and text[pos] != "]":
        end = _value_end(text, pos)
        if end <= pos:
            return found
        found.append(text[pos:end])
        pos = _skip(text, end)
        if text[pos : pos + 1] == ",":
            pos = _skip(text, pos + 1)
    return found


def may_start_call(text: str, tools: KnownTools) -> bool | None:
    """Whether an object that begins so may be a call without markers; None if more of it has to be seen."""
    body = text[1:]
    found = _KEY.match(body)
    if found is None:
        head = body.lstrip()
        return None if len(head) < 70 and (not head or (head[0] in "\"'" and head[0] not in head[1:])) else False
    key, value, rest = found[2], found[3], body[found.end() :]
    if key in _GROUP_KEYS or (key in _NESTING_KEYS and rest.startswith("{")):
        return True
    if key not in NAME_KEYS and key != _ROLE_KEY:
        return key in _CALL_KEYS
    if value is None:
        return None if len(rest) < 1_000 else False
    if key == _ROLE_KEY:
        return _string(value) == "assistant"
    return tools.may_call(_string(value)) or (tools.fallback_taught and key == "tool")


def parse_unmarked_calls(text: str) -> list[JsonCall]:
    """The calls that an object without markers says: itself, or those that it holds and nothing else."""
    spans = member_spans(text)
    key = next((key for key in _GROUP_KEYS if key in spans), None)
    if key is None:
        call = parse_call(text)
        return [call] if call is not None else []
    group = _of(text, spans, key)
    texts = [group] if group.startswith("{") else list_items(group) if group.startswith("[") else []
    found = [call for call in map(parse_call, texts) if call is not None]
    return found if len(found) == len(texts) and _says_nothing_else(text, spans, key) else []


def _says_nothing_else(text: str, spans: dict[str, tuple[int, int]], key: str) -> bool:
    """Whether an object has no other member, or is a whole message without text."""
    return spans.keys() - {key} <= _MESSAGE_KEYS and ("content" not in spans or _of(text, spans, "content") in ("null", '""'))


def read_json_calls(cursor: TextCursor, tools: KnownTools) -> Incremental[list[FoundCall]]:
    """Read one JSON value behind a marker: an object, or a list of objects. What in a list is no call is passed over.

    An object without a name key calls what its members are named for, if they are objects or `null`.
    """
    text = yield from cursor.read_bracketed()
    texts = [text] if text.startswith("{") else list_items(text)
    found = [call for one in texts for call in _explicit(one, tools)]
    if not found and text.strip("[] \t\r\n"):
        raise NotACall
    return found


def _explicit(text: str, tools: KnownTools) -> Iterator[FoundCall]:
    call = parse_call(text) if text.startswith("{") else None
    held = parse_unmarked_calls(text) if call is None else []
    if held:
        yield from (replace(one, arguments=one.arguments or "{}").found(tools) for one in held)
        return
    if call is None:
        spans = member_spans(text)
        named = {
            name: normalise_arguments(text[start:end]) for name, (start, end) in spans.items() if tools.has(name) or name not in _CALL_KEYS
        }
        yield from (FoundCall(name=tools.clean_name(name), arguments=value) for name, value in named.items() if value[0] == "{")
        return
    if not call.arguments:
        rest = _rest(text)
        call = JsonCall(name=call.name, arguments=rest, id=call.id, reasoning=call.reasoning, lifted=rest != "{}")
    if call.name:
        yield call.found(tools)


def _rest(text: str) -> str:
    """The members of a call without arguments, that may be its arguments: an object of what is left."""
    return json_object({key: text[start:end] for key, (start, end) in member_spans(text).items() if key not in _CALL_KEYS})


class MarkedJson:
    """A reader of objects, and of lists of objects, up to one of these markers."""

    def __init__(self, *closers: str) -> None:
        self._closers = closers

    def __call__(self, cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
        yield from cursor.skip_space()
        yield from cursor.take(*_FENCES)
        yield from cursor.skip_space()
        if (yield from cursor.peek()) not in ("{", "["):
            raise NotACall
        while (yield from cursor.peek()) in ("{", "["):
            yield from (yield from read_json_calls(cursor, tools))
            yield from cursor.take_while(_STRAY)
            yield from cursor.take("```")
            yield from cursor.skip_space()
        if self._closers:
            yield from cursor.take(*self._closers)
