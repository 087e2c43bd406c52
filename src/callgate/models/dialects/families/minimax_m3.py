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

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.names import MAX_NAME, ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.typed import as_object, inner_schema, kinds_of, only_text, quoted, typed
from callgate.models.dialects.values import name_in, read_balanced

__all__ = ["MINIMAX_M3"]

_TOKEN = "]<]minimax[>["
_MAX_DEPTH = 64
_WORDS = "$text"
"""The member that text beside tags is."""
Schema = Mapping[str, object]


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    count = 0
    while True:
        yield from cursor.white()
        if not (yield from cursor.take(_TOKEN)):
            break
        yield from cursor.white()
        if (yield from cursor.take("</tool_call>")):
            break
        yield from cursor.expect("<invoke ")
        name = tools.written(name_in((yield from cursor.until(">"))[0]))
        if not name or len(name) > MAX_NAME:
            raise NoCall
        root = tools.schema(name)
        text = yield from _inside(cursor, root, root, "invoke", 0)
        count += 1
        yield Found(name=name, arguments=text)
    if not count:
        raise NoCall


def _inside(cursor: Cursor, schema: Schema | None, root: Schema | None, tag: str, depth: int) -> Wait[str]:
    """Read to the end of the tag: the value as JSON."""
    if depth > _MAX_DEPTH:
        raise NoCall
    if only_text(schema, root):
        opens, closes = (tuple(f"{_TOKEN}{gap}<{slash}{tag}>" for gap in ("", " ", "\n")) for slash in ("", "/"))
        return quoted((yield from read_balanced(cursor, opens, closes)))
    members: dict[str, list[str]] = {}
    words: list[str] = []
    while True:
        words.append((yield from cursor.until(_TOKEN))[0])
        yield from cursor.white()
        if (yield from cursor.take(f"</{tag}>")):
            break
        yield from cursor.expect("<")
        name = (yield from cursor.until(">"))[0].strip()
        if name.startswith("/"):
            raise NoCall
        members.setdefault(name, []).append((yield from _inside(cursor, inner_schema(schema, name, root), root, name, depth + 1)))
    text = "".join(words)
    if depth == 0:
        return _object(members)
    if not members:
        return _leaf(text, schema, root)
    if text.strip():
        members.setdefault(_WORDS, []).append(quoted(text))
    return _list(members) if _is_list(members, kinds_of(schema, root)) else _object(members)


def _leaf(text: str, schema: Schema | None, root: Schema | None) -> str:
    """A value without tags. An empty one is an empty list or object where no text is allowed."""
    kinds = kinds_of(schema, root)
    if text.strip() or "string" in kinds or not kinds & {"array", "object"}:
        return typed(text, schema, root)
    return "[]" if "array" in kinds else "{}"


def _is_list(members: dict[str, list[str]], kinds: frozenset[str]) -> bool:
    return "array" in kinds and ("object" not in kinds or list(members) == ["item"])


def _list(members: dict[str, list[str]]) -> str:
    return f"[{', '.join(value for values in members.values() for value in values)}]"


def _object(members: dict[str, list[str]]) -> str:
    return as_object({name: values[0] if len(values) == 1 else f"[{', '.join(values)}]" for name, values in members.items()})


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
