"""Calls written as JSON: which members of an object are the name, the arguments and the rest.

Arguments are returned exactly as written, digits and repeated keys included; the engine validates them. So members are located in the text,
and only the name is decoded. Linear in the text's length. Knows no markers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.python_literals import python_to_json
from callgate.models.dialects.schema_matching import single_text_argument
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.typed_values import json_object, json_type

__all__ = [
    "JsonCall",
    "may_start_call",
    "normalise_arguments",
    "parse_call",
    "parse_malformed_call",
    "parse_marked_calls",
    "parse_unmarked_calls",
]

_NAME_KEYS = ("name", "tool_name", "tool", "function_name", "function", "action", "recipient_name")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input", "action_input", "tool_input", "kwargs", "tool_arguments")
_UNIQUE_KEYS = frozenset({*_NAME_KEYS, *_ARGUMENT_KEYS})
_ID_KEYS = ("id", "tool_call_id", "call_id")
_REASON_KEYS = ("reasoning", "thought", "thoughts")
_OTHER_KEYS = frozenset({"type", "index"})
_CALL_KEYS = frozenset({*_NAME_KEYS, *_ARGUMENT_KEYS, *_ID_KEYS, *_REASON_KEYS, *_OTHER_KEYS})
_GROUP_KEYS = ("tool_calls", "tool_call", "function_calls", "function_call", "functionCall", "tool_uses")
_NESTING_KEYS = ("function", "tool", "action")
_ROLE_KEY = "role"
_MESSAGE_KEYS = frozenset({_ROLE_KEY, "content", *_REASON_KEYS})
_STANDARD_NAME_KEYS = ("name", "tool_name", "tool", "function")
_STANDARD_ARGUMENT_KEYS = ("arguments", "parameters")
_FALLBACK_KEYS = frozenset({"tool", "reasoning", *_STANDARD_ARGUMENT_KEYS})
_INPUT_KEYS = ("input", "action_input", "tool_input")
_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_FIRST_MEMBER = re.compile(r"""\s*(["'])([^"'\\]{1,64})\1\s*(?::\s*("[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*')?)?""", re.DOTALL)
_BARE_VALUE = re.compile(r"[^\s,\]}\[{\"':]+")
_PLACEHOLDER = re.compile(r"<[^<>]*>|\W*")
"""Matches what a template has in place of a name, as in `{"name": "<function-name>"}` and `{"name": "..."}`."""
_MALFORMED = re.compile(
    r"""\s*(?P<list>\[\s*)?\{\s*(?:"(?:id|type|tool_call_id|call_id)"\s*:\s*"[^"\\]{0,100}"\s*,\s*){0,3}"""
    r"""(["']?)(?:name|tool_name)\2\s*:\s*(["'])(?P<name>[^"'\\]{1,200})\3\s*,?\s*"""
    r"""(["']?)(?:arguments|parameters|args)\5\s*:\s*(?P<arguments>\{.*)""",
    re.DOTALL,
)
"""Matches the name and the arguments of a call in malformed JSON."""
_BRACKET_OR_QUOTE = re.compile(r'[\[\]{}"]')


class JsonCall(Struct, frozen=True, kw_only=True):
    """An object read as a call."""

    name: str
    arguments: str
    id: str = ""
    reasoning: str = ""
    has_other_keys: bool = False
    """Whether the object has members that calls do not have."""
    has_standard_keys: bool = False
    """Whether the keys of the name and the arguments are ones that other JSON objects rarely have."""
    sibling_arguments: str = ""
    """In the fallback format, if the parameters are empty or missing: the object's other members, as an object."""
    lifted: bool = False
    """Whether `sibling_arguments` became the arguments."""
    has_input_key: bool = False
    """Whether the arguments have a key such as `input`, whose value may be bare text."""
    is_fallback: bool = False
    """Whether the object has the fallback format: the members `tool` and the parameters, and no unknown members."""

    def to_found_call(self, tools: KnownTools) -> FoundCall:
        """Return the call as a part of the message."""
        arguments = self.arguments
        if self.has_input_key and arguments[:1] == '"':
            arguments = single_text_argument(_decode_string(arguments), tools.schema(self.name)) or arguments
        name = tools.clean_name(self.name)
        return FoundCall(name=name, arguments=arguments, id=self.id, reasoning=self.reasoning, lifted=self.lifted)


def _find_members(text: str) -> dict[str, tuple[int, int]]:
    """Return the span of each member's value in the text of an object; empty if `text` is not an object.

    If a key is repeated, its first member counts. Empty if it is the key of a call's name or arguments, because either member may be meant.
    """
    found: dict[str, tuple[int, int]] = {}
    pos = _skip_space(text, 1)
    while text[:1] == "{" and pos < len(text) and text[pos] == '"':
        key = _STRING.match(text, pos)
        colon = _skip_space(text, key.end()) if key else len(text)
        if key is None or text[colon : colon + 1] != ":":
            return {}
        start = _skip_space(text, colon + 1)
        end = _find_value_end(text, start)
        if end <= start:
            return {}
        name = _decode_string(key.group())
        if name in found and name in _UNIQUE_KEYS:
            return {}
        found.setdefault(name, (start, end))
        pos = _skip_space(text, end)
        if text[pos : pos + 1] != ",":
            break
        pos = _skip_space(text, pos + 1)
    return found if pos < len(text) and text[pos] == "}" else {}


def _skip_space(text: str, pos: int) -> int:
    found = _SPACE.match(text, pos)
    return found.end() if found else pos


def _find_value_end(text: str, pos: int) -> int:
    """Return where the JSON value that starts at `pos` ends; `pos` if none starts there."""
    if text[pos : pos + 1] not in ("{", "["):
        found = _STRING.match(text, pos) or _BARE_VALUE.match(text, pos)
        return found.end() if found else pos
    depth = 0
    at = pos
    while True:
        mark = _BRACKET_OR_QUOTE.search(text, at)
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


def _decode_string(text: str) -> str:
    """Return the value of a JSON string; the text between the quotes if it is malformed."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text.strip("\"'")
    return value if isinstance(value, str) else text.strip("\"'")


def parse_call(text: str) -> JsonCall | None:
    """Return the call that an object, or an object nested in it, describes; None if it has no name."""
    spans = _find_members(text)
    if not spans:
        return _parse_python_object(text)
    held = (_get_member(text, spans, key) for key in _NESTING_KEYS if key in spans)
    inner = next((one for one in held if one.startswith("{")), "")
    outer = _parse_members(text, spans)
    if not inner or (outer is not None and any(key in spans for key in _ARGUMENT_KEYS)):
        return outer
    call = _parse_members(inner, _find_members(inner))
    return call if call is None or call.id else replace(call, id=_get_first_member(text, spans, _ID_KEYS))


def _parse_members(text: str, spans: dict[str, tuple[int, int]]) -> JsonCall | None:
    name_key = next((key for key in _NAME_KEYS if key in spans and _get_member(text, spans, key).startswith('"')), None)
    if name_key is None:
        return None
    name = _get_member(text, spans, name_key)
    key = next((key for key in _ARGUMENT_KEYS if key in spans), None)
    arguments = normalise_arguments(_get_member(text, spans, key)) if key else ""
    return JsonCall(
        name=_decode_string(name),
        arguments=arguments,
        id=_get_first_member(text, spans, _ID_KEYS),
        reasoning=_get_first_member(text, spans, _REASON_KEYS),
        has_other_keys=not _CALL_KEYS.issuperset(spans),
        has_standard_keys=name_key in _STANDARD_NAME_KEYS and key in _STANDARD_ARGUMENT_KEYS,
        sibling_arguments=_collect_other_members(text) if name_key == "tool" and arguments in ("", "{}") else "",
        has_input_key=key in _INPUT_KEYS,
        is_fallback=name_key == "tool" and key in _STANDARD_ARGUMENT_KEYS and _FALLBACK_KEYS.issuperset(spans),
    )


def _get_member(text: str, spans: dict[str, tuple[int, int]], key: str) -> str:
    start, end = spans[key]
    return text[start:end]


def _get_first_member(text: str, spans: dict[str, tuple[int, int]], keys: tuple[str, ...]) -> str:
    """Return the text of the first of these members that exists; empty if there is none."""
    return next((_decode_string(_get_member(text, spans, key)) for key in keys if key in spans), "")


def _parse_python_object(text: str) -> JsonCall | None:
    """Return the call that an object in Python syntax describes."""
    try:
        written = python_to_json(text)
    except ValueError:
        return None
    return parse_call(written) if written != text and _find_members(written) else None


def normalise_arguments(text: str) -> str:
    """Return arguments as the text of an object.

    Empty text and `null` become `{}`. A JSON string that contains an object becomes that object.
    """
    if text in ("null", "", '""'):
        return "{}"
    if text.startswith('"'):
        inner = _decode_string(text).strip()
        return inner if inner.startswith("{") else text
    return text


def _split_list(text: str) -> list[str]:
    """Return the items of a list, each as the text that was written; empty if a text between its items is no JSON.

    Otherwise an object in an argument of a Python call would be an item. If an item has no end, the items before it are
    returned.
    """
    found: list[str] = []
    pos = _skip_space(text, 1)
    while text[pos : pos + 1] not in ("", "]"):
        end = _find_value_end(text, pos)
        if end <= pos:
            return found
        found.append(text[pos:end])
        pos = _skip_space(text, end)
        following = text[pos : pos + 1]
        if following == ",":
            pos = _skip_space(text, pos + 1)
        elif following not in ("", "]", "{") or (following == "{" and found[-1][0] != "{"):
            return []
    return found


def may_start_call(text: str, tools: KnownTools) -> bool | None:
    """Whether an object with this start may be an unmarked call; None if more text is needed."""
    body = text[1:]
    found = _FIRST_MEMBER.match(body)
    if found is None:
        start = body.lstrip()
        return None if len(start) < 70 and (not start or (start[0] in "\"'" and start[0] not in start[1:])) else False
    key, value, rest = found[2], found[3], body[found.end() :]
    if key in _GROUP_KEYS or (key in _NESTING_KEYS and rest.startswith("{")):
        return True
    if key not in _NAME_KEYS and key != _ROLE_KEY:
        return key in _CALL_KEYS
    if value is None:
        return None if len(rest) < 1_000 else False
    if key == _ROLE_KEY:
        return _decode_string(value) == "assistant"
    return tools.may_call(_decode_string(value)) or (tools.fallback_taught and key == "tool")


def parse_unmarked_calls(text: str) -> list[JsonCall]:
    """Return the calls that an object without markers describes or contains.

    Empty if the object contains anything else than calls.
    """
    spans = _find_members(text)
    key = next((key for key in _GROUP_KEYS if key in spans), None)
    if key is None:
        call = parse_call(text)
        return [call] if call is not None else []
    group = _get_member(text, spans, key)
    texts = [group] if group.startswith("{") else _split_list(group) if group.startswith("[") else []
    found = [call for call in map(parse_call, texts) if call is not None]
    return found if len(found) == len(texts) and _has_only_calls(text, spans, key) else []


def _has_only_calls(text: str, spans: dict[str, tuple[int, int]], key: str) -> bool:
    """Whether an object has no other members than its calls, except those of a message without text, and a reason."""
    return spans.keys() - {key} <= _MESSAGE_KEYS and ("content" not in spans or _get_member(text, spans, "content") in ("null", '""'))


def parse_marked_calls(text: str, tools: KnownTools, *, keyed: bool = False) -> list[FoundCall]:
    """Return the calls in a JSON value that follows a marker: an object, or a list of objects. Items that are not calls are skipped.

    In an object without a name key, each member is a call and its key is the tool's name, if all values are objects or
    `null`, and if all tools are known or the family writes calls like this (`keyed`).
    """
    texts = [text] if text.startswith("{") else _split_list(text)
    return [call for one in texts for call in _parse_marked_object(one, tools, keyed)]


def parse_malformed_call(text: str, tools: KnownTools) -> list[FoundCall]:
    """Return the call in malformed JSON before its closing marker, with its arguments as written; none without a name or in valid JSON.

    The closing bracket of the call itself is not part of the arguments; if only this one is missing, the arguments are complete.
    """
    written = _MALFORMED.fullmatch(text)
    if written is None or _PLACEHOLDER.fullmatch(written["name"]) or json_type(text):
        return []
    arguments = written["arguments"].rstrip("; \t\r\n")
    if written["list"]:
        arguments = arguments.removesuffix("]").rstrip()
    is_unclosed = _find_value_end(written["arguments"], 0) == len(arguments)
    if not is_unclosed:
        arguments = arguments.removesuffix("}").rstrip()
    return [FoundCall(name=tools.clean_name(written["name"]), arguments=arguments)]


def _parse_marked_object(text: str, tools: KnownTools, keyed: bool) -> Iterator[FoundCall]:
    call = parse_call(text) if text.startswith("{") else None
    held = parse_unmarked_calls(text) if call is None else []
    if held:
        yield from (replace(one, arguments=one.arguments or "{}").to_found_call(tools) for one in held)
        return
    if call is None:
        yield from _parse_keyed_object(text, tools, keyed)
        return
    if not call.arguments:
        rest = _collect_other_members(text)
        call = JsonCall(name=call.name, arguments=rest, id=call.id, reasoning=call.reasoning, lifted=rest != "{}")
    if not _PLACEHOLDER.fullmatch(call.name):
        yield call.to_found_call(tools)


def _parse_keyed_object(text: str, tools: KnownTools, keyed: bool) -> Iterator[FoundCall]:
    """Yield a call for each member of an object; none if a member cannot be one."""
    named = {name: normalise_arguments(text[start:end]) for name, (start, end) in _find_members(text).items()}
    if all((tools.has(name) or (keyed and name not in _CALL_KEYS)) and value[0] == "{" for name, value in named.items()):
        yield from (FoundCall(name=tools.clean_name(name), arguments=value) for name, value in named.items())


def _collect_other_members(text: str) -> str:
    """Return the members that may be the arguments of a call without arguments: all except the call's own keys."""
    return json_object({key: text[start:end] for key, (start, end) in _find_members(text).items() if key not in _CALL_KEYS})
