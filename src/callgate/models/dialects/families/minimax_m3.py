"""MiniMax M3: tags named for the parameters, nested as deep as the value, each behind a token.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

Tags of the same name are a list. All tags of a value are one where its schema says so, or where they are all called `item` and it does not
say otherwise.

Source: the chat template of MiniMax-M3.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_NAME_CHARS, KnownTools
from callgate.models.dialects.parsed_parts import FoundCall
from callgate.models.dialects.tag_values import read_balanced, tag_name
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor
from callgate.models.dialects.typed_values import allowed_types, is_text_only, json_object, json_string, nested_schema, to_typed_json

__all__ = ["MINIMAX_M3"]

_TOKEN = "]<]minimax[>["
_MAX_DEPTH = 64
_WORDS = "$text"
"""The member that text beside tags is."""
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
        name = tools.clean_name(tag_name((yield from cursor.read_until(">"))[0]))
        if not name or len(name) > MAX_NAME_CHARS:
            raise NotACall
        root = tools.schema(name)
        text = yield from _inside(cursor, root, root, "invoke", 0)
        count += 1
        yield FoundCall(name=name, arguments=text)
    if not count:
        raise NotACall


def _inside(cursor: TextCursor, schema: Schema | None, root: Schema | None, tag: str, depth: int) -> Incremental[str]:
    """Read to the end of the tag: the value as JSON."""
    if depth > _MAX_DEPTH:
        raise NotACall
    if is_text_only(schema, root):
        opens, closes = (tuple(f"{_TOKEN}{gap}<{slash}{tag}>" for gap in ("", " ", "\n")) for slash in ("", "/"))
        return json_string((yield from read_balanced(cursor, opens, closes)))
    members: dict[str, list[str]] = {}
    words: list[str] = []
    while True:
        words.append((yield from cursor.read_until(_TOKEN))[0])
        yield from cursor.skip_space()
        if (yield from cursor.take(f"</{tag}>")):
            break
        yield from cursor.expect("<")
        name = (yield from cursor.read_until(">"))[0].strip()
        if name.startswith("/"):
            raise NotACall
        members.setdefault(name, []).append((yield from _inside(cursor, nested_schema(schema, name, root), root, name, depth + 1)))
    text = "".join(words)
    if depth == 0:
        return _object(members)
    if not members:
        return _leaf(text, schema, root)
    if text.strip():
        members.setdefault(_WORDS, []).append(json_string(text))
    return _list(members) if _is_list(members, allowed_types(schema, root)) else _object(members)


def _leaf(text: str, schema: Schema | None, root: Schema | None) -> str:
    """A value without tags. An empty one is an empty list or object where no text is allowed."""
    kinds = allowed_types(schema, root)
    if text.strip() or "string" in kinds or not kinds & {"array", "object"}:
        return to_typed_json(text, schema, root)
    return "[]" if "array" in kinds else "{}"


def _is_list(members: dict[str, list[str]], kinds: frozenset[str]) -> bool:
    return "array" in kinds and ("object" not in kinds or list(members) == ["item"])


def _list(members: dict[str, list[str]]) -> str:
    return f"[{', '.join(value for values in members.values() for value in values)}]"


def _object(members: dict[str, list[str]]) -> str:
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
    thoughts=(("<mm:think>", "</mm:think>"),),
)
