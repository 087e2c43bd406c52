"""DeepSeek R1, V3 and V3.1, Cogito, and Step 3 with tags inside: a token for each part of a call.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Older models write `function` before the separator, and the name and a JSON fence behind it.

Source: the chat templates of DeepSeek-R1, DeepSeek-V3 and DeepSeek-V3.1; the model card of Step3.
"""

from __future__ import annotations

import re
from itertools import product

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.json_calls import argument_text
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.tagged import Tags, read_tagged

__all__ = ["DEEPSEEK"]


def _spelled(words: str) -> tuple[str, ...]:
    """A token in every spelling that quantised models and other tokenizers give it."""
    return tuple(f"<{bar}{words.replace(' ', gap)}{bar}>" for bar, gap in product("｜|", "▁_ "))


_SEPARATOR = _spelled("tool sep")
_END = _spelled("tool call end")
_END_ALL = _spelled("tool calls end")
_BEGIN = _spelled("tool call begin")
_SILENT = (
    "tool calls begin",
    "tool calls end",
    "tool call end",
    "tool calls",
    "tool output begin",
    "tool output end",
    "tool outputs begin",
    "tool outputs end",
    "end of sentence",
)
_NAME = re.compile(r"[^\n`{<]*")
_STEP = Tags(
    call=("<steptml:invoke",),
    end=("</steptml:invoke>",),
    parameter=("<steptml:parameter",),
    end_parameter=("</steptml:parameter>",),
)


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    if not opener.startswith("<"):
        cursor.unread(opener)
    yield from cursor.white()
    header = ""
    if not (yield from cursor.at(_STEP.call[0])):
        header, mark = yield from cursor.until(*_SEPARATOR, *_END, "\n")
        if "<" in header:
            raise NoCall
        if mark == "\n":
            yield from cursor.white()
            yield from cursor.expect(*_SEPARATOR)
        elif mark not in _SEPARATOR:
            raise NoCall
        yield from cursor.white()
    if (yield from cursor.take(*_STEP.call)):
        yield (yield from read_tagged(cursor, tools, _STEP))
    else:
        yield (yield from _json(cursor, tools, header.strip()))
    yield from cursor.white()
    yield from cursor.take(*_END)


def _json(cursor: Cursor, tools: ToolNames, header: str) -> Wait[Found]:
    """The name, unless it came before the separator, and the arguments."""
    name = (yield from cursor.run(_NAME)).strip() if header in ("function", "") else header
    yield from cursor.white()
    yield from cursor.take("```json", "```")
    yield from cursor.white()
    if not name:
        raise NoCall
    if (yield from cursor.peek()) == "{":
        text = (yield from cursor.value(*_END, *_END_ALL)).rstrip("`\n\r\t ")
    else:
        text = yield from cursor.take("null")
    yield from cursor.white()
    yield from cursor.take("```")
    yield from cursor.white()
    if not text.startswith("{") and not (yield from cursor.at_any(*_END)):
        raise NoCall
    return Found(name=tools.written(name), arguments=argument_text(text))


DEEPSEEK = Dialect(
    name="deepseek",
    families="DeepSeek R1, V3, V3.1; Cogito; Step 3",
    example='<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>',
    openers=(*_BEGIN, "function<｜tool▁sep｜>", "function<|tool▁sep|>"),
    read=_read,
    silent=tuple(token for words in _SILENT for token in _spelled(words)),
)
