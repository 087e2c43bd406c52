"""MiniMax M3: tags named for the parameters, nested as deep as the value, each behind a token.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="get_weather">]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

Tags of the same name are a list, as are those that are all called `item`.

Source: the chat template of MiniMax-M3.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.typed import as_object, items_schema, parameter_schema, typed

__all__ = ["MINIMAX_M3"]

_TOKEN = "]<]minimax[>["
_MAX_DEPTH = 64
Schema = Mapping[str, object]


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    count = 0
    while True:
        yield from cursor.white()
        if not (yield from cursor.take(_TOKEN)):
            break
        if (yield from cursor.take("</tool_call>")):
            break
        yield from cursor.expect('<invoke name="')
        name = tools.written((yield from cursor.until('">'))[0])
        if not name or len(name) > 200:
            raise NoCall
        root = tools.schema(name)
        text = yield from _inside(cursor, root, root, "invoke", 0)
        count += 1
        yield Found(name=name, arguments=text if text.startswith("{") else "{}")
    if not count:
        raise NoCall


def _inside(cursor: Cursor, schema: Schema | None, root: Schema | None, tag: str, depth: int) -> Wait[str]:
    """Read to the end of the tag: the value as JSON."""
    if depth > _MAX_DEPTH:
        raise NoCall
    members: dict[str, list[str]] = {}
    while True:
        text, _ = yield from cursor.until(_TOKEN)
        if (yield from cursor.take(f"</{tag}>")):
            return _joined(members) if members else _leaf(text, schema, root, tag)
        yield from cursor.expect("<")
        name, _ = yield from cursor.until(">")
        if name.startswith("/"):
            raise NoCall
        inner = parameter_schema(schema, name) or items_schema(schema)
        members.setdefault(name, []).append((yield from _inside(cursor, inner, root, name, depth + 1)))


def _leaf(text: str, schema: Schema | None, root: Schema | None, tag: str) -> str:
    return "{}" if tag == "invoke" else typed(text, schema, root)


def _joined(members: dict[str, list[str]]) -> str:
    if list(members) == ["item"]:
        return f"[{', '.join(members['item'])}]"
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
