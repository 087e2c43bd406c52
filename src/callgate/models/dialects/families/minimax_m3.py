"""MiniMax M3: tags with the parameters' names, nested like the value, each after a special token.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

Repeated tags form a list. All tags of a value form a list if its schema says so, or if they are all called `item` and the schema does not
say otherwise.

The name may also be an attribute, as in MiniMax M2: `<parameter name="city">`.

Source: the chat template of MiniMax-M3.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.tag_values import read_balanced, tag_name
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import allowed_types, is_text_only, json_object, json_string, nested_schema, to_typed_json

__all__ = ["MINIMAX_M3"]

_TOKEN = "]<]minimax[>["
_MAX_NESTING = 64
_TEXT_KEY = "$text"
"""The key of the member that holds the text next to tags."""
Schema = Mapping[str, object]


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    count = 0
    while True:
        yield from cursor.skip_space()
        if not (yield from cursor.take(_TOKEN)):
            break
        yield from cursor.skip_space()
        if (yield from cursor.take("</tool_call>")):
            break
        yield from cursor.expect("<invoke ")
        name = tools.clean_name(tag_name((yield from cursor.read_until(">", limit=MAX_HEADER_CHARS))[0]))
        if not name or len(name) > MAX_NAME_CHARS:
            raise NotACall
        root = tools.schema(name)
        text = yield from _read_tag_value(cursor, root, root, "invoke", 0)
        count += 1
        yield FoundCall(name=name, arguments=text)
    if not count:
        raise NotACall


def _read_tag_value(cursor: TextCursor, schema: Schema | None, root: Schema | None, tag: str, depth: int) -> Incremental[str]:
    """Read to the end of the tag; return the value as JSON."""
    if depth > _MAX_NESTING:
        raise NotACall
    if is_text_only(schema, root):
        openers, closers = (tuple(f"{_TOKEN}{gap}<{slash}{tag}>" for gap in ("", " ", "\n")) for slash in ("", "/"))
        return json_string((yield from read_balanced(cursor, openers, closers)))
    members: dict[str, list[str]] = {}
    texts: list[str] = []
    while True:
        texts.append((yield from cursor.read_until(_TOKEN))[0])
        yield from cursor.skip_space()
        if (yield from cursor.take(f"</{tag}>")):
            break
        yield from cursor.expect("<")
        header = (yield from cursor.read_until(">"))[0].strip()
        if header.startswith("/"):
            raise NotACall
        inner, name = ("parameter", tag_name(header)) if header.startswith("parameter ") else (header, header)
        members.setdefault(name, []).append((yield from _read_tag_value(cursor, nested_schema(schema, name, root), root, inner, depth + 1)))
    text = "".join(texts)
    if depth == 0:
        return _write_object(members)
    if not members:
        return _convert_text(text, schema, root)
    if text.strip():
        members.setdefault(_TEXT_KEY, []).append(json_string(text))
    return _write_list(members) if _is_list(members, allowed_types(schema, root)) else _write_object(members)


def _convert_text(text: str, schema: Schema | None, root: Schema | None) -> str:
    """Return a value without tags as JSON.

    An empty value becomes an empty list or object if the schema allows one of these and no text.
    """
    kinds = allowed_types(schema, root)
    if text.strip() or "string" in kinds or not kinds & {"array", "object"}:
        return to_typed_json(text, schema, root)
    return "[]" if "array" in kinds else "{}"


def _is_list(members: dict[str, list[str]], kinds: frozenset[str]) -> bool:
    return "array" in kinds and ("object" not in kinds or list(members) == ["item"])


def _write_list(members: dict[str, list[str]]) -> str:
    return f"[{', '.join(value for values in members.values() for value in values)}]"


def _write_object(members: dict[str, list[str]]) -> str:
    return json_object({name: values[0] if len(values) == 1 else f"[{', '.join(values)}]" for name, values in members.items()})


MINIMAX_M3 = Dialect(
    name="minimax-m3",
    families="MiniMax M3",
    example=(
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris]<]minimax[>[</city>'
        "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"
    ),
    openers=(f"{_TOKEN}<tool_call>",),
    read=_read,
    reasoning_markers=(("<mm:think>", "</mm:think>"),),
)
