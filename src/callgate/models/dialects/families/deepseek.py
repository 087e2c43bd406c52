"""DeepSeek R1, V3 and V3.1, Cogito, and Step 3 with tags inside: a special token before each part of a call.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Step DeepResearch writes the tags alone, in `<steptml:toolcall>`.

Older models write `function` before the separator, and after it the name and a JSON fence. Some leave out the separator.

Source: the chat templates of DeepSeek-R1, DeepSeek-V3 and DeepSeek-V3.1; the model card of Step3.
"""

from __future__ import annotations

import re
from itertools import product

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.json_calls import normalise_arguments
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.tagged_calls import CallTags, read_tagged_call, read_tagged_calls
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["DEEPSEEK"]


def _spell_token(words: str) -> tuple[str, ...]:
    """Return a token in the spellings that quantised models and other tokenizers produce."""
    return tuple(f"<{bar}{words.replace(' ', gap)}{bar}>" for bar, gap in product("｜|", "▁_ "))


_SEPARATOR = _spell_token("tool sep")
_END = _spell_token("tool call end")
_END_ALL = _spell_token("tool calls end")
_BEGIN = _spell_token("tool call begin")
_IGNORED = (
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
_STEP = CallTags(
    call=("<steptml:invoke",),
    end=("</steptml:invoke>",),
    parameter=("<steptml:parameter",),
    end_parameter=("</steptml:parameter>",),
)
_STEP_SECTION, _END_STEP_SECTION = "<steptml:toolcall>", "</steptml:toolcall>"


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    if opener == _STEP_SECTION:
        yield from read_tagged_calls(cursor, tools, _STEP, _END_STEP_SECTION)
        return
    if not opener.startswith("<"):
        cursor.give_back(opener)
    yield from cursor.skip_space()
    header = ""
    if not (yield from cursor.at(_STEP.call[0])):
        header, marker = yield from cursor.read_until(*_SEPARATOR, *_END, "\n", "{", limit=MAX_HEADER_CHARS)
        if "<" in header or marker in _END:
            raise NotACall
        cursor.give_back("{" if marker == "{" else "")
        yield from cursor.skip_space()
        if marker not in _SEPARATOR and not (yield from cursor.take(*_SEPARATOR)):
            yield (yield from _read_call_without_separator(cursor, tools, header.strip()))
            return
        yield from cursor.skip_space()
    if (yield from cursor.take(*_STEP.call)):
        yield (yield from read_tagged_call(cursor, tools, _STEP))
    else:
        yield (yield from _read_json_call(cursor, tools, header.strip()))
    yield from cursor.skip_space()
    yield from cursor.take(*_END)


def _read_call_without_separator(cursor: TextCursor, tools: KnownTools, header: str) -> Incremental[FoundCall]:
    """Read a call whose arguments directly follow the name. They must be an object, and the call's end must follow."""
    name = header.removeprefix("function ").strip()
    found = yield from _read_json_call(cursor, tools, name, ends=())
    yield from cursor.skip_space()
    yield from cursor.expect(*_END)
    return found


def _read_json_call(
    cursor: TextCursor, tools: KnownTools, header: str, *, ends: tuple[str, ...] = (*_END, *_END_ALL)
) -> Incremental[FoundCall]:
    """Read the arguments, and before them the name unless it came before the separator."""
    name = (yield from cursor.take_while(_NAME)).strip() if header in ("function", "") else header
    yield from cursor.skip_space()
    yield from cursor.take("```json", "```")
    yield from cursor.skip_space()
    if not tools.is_name(name):
        raise NotACall
    if (yield from cursor.peek()) == "{":
        text = (yield from read_arguments(cursor, *ends, stops=_BEGIN)).rstrip("`\n\r\t ")
    else:
        text = yield from cursor.take("null")
    yield from cursor.skip_space()
    yield from cursor.take("```")
    yield from cursor.skip_space()
    if not text.startswith("{") and not (yield from cursor.at_any(*_END)):
        raise NotACall
    return FoundCall(name=tools.clean_name(name), arguments=normalise_arguments(text))


DEEPSEEK = Dialect(
    name="deepseek",
    families="DeepSeek R1, V3, V3.1; Cogito; Step 3, Step DeepResearch",
    example='<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>',
    openers=(*_BEGIN, _STEP_SECTION, "function<｜tool▁sep｜>", "function<|tool▁sep|>"),
    read=_read,
    ignored_markers=tuple(token for words in _IGNORED for token in _spell_token(words)),
)
