"""Qwen3-Coder and Qwen 3.5, Seed-OSS, Step 3.5, Nemotron 3, MiMo; Llama 3.1 and Functionary with JSON inside: one tag per parameter.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Some models leave out the tag around the name: `<tool_call>get_weather`, and then the parameters.

Source: the chat templates of Qwen3-Coder and Seed-OSS; Meta's prompt format for Llama 3.1 (`<function=name>{...}</function>`).
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.tagged_calls import CallTags, read_parameters, read_tagged_calls, with_space_variants
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["QWEN_XML"]

_TAGS = CallTags(
    call=with_space_variants("<function=", "<function name="),
    end=with_space_variants("</function>"),
    parameter=with_space_variants("<parameter=", "<parameter name="),
    end_parameter=with_space_variants("</parameter>"),
    trim_line_breaks=True,
)
_SEED_TAGS, _SEED_OPENER = replace(_TAGS, trim_line_breaks=False), "<seed:tool_call>"
"""Seed-OSS writes values without line breaks around them."""
_NAME = re.compile(r"[\w.\-/:]*")
_CLOSERS = ("</tool_call>", "</seed:tool_call>")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    tags = _SEED_TAGS if opener == _SEED_OPENER else _TAGS
    if opener == "<function=":
        cursor.give_back(opener)
    else:
        yield from cursor.skip_space()
        if (yield from cursor.peek()) not in ("<", ""):
            yield (yield from _read_call_without_tag(cursor, tools, tags))
    yield from read_tagged_calls(cursor, tools, tags, *_CLOSERS)


def _read_call_without_tag(cursor: TextCursor, tools: KnownTools, tags: CallTags) -> Incremental[FoundCall]:
    """Read a call whose name has no tag around it. A parameter, or the end of the call, must follow the name."""
    name = tools.clean_name((yield from cursor.take_while(_NAME)))
    yield from cursor.skip_space()
    if not tools.is_name(name) or not (yield from cursor.at_any(*tags.parameter, *tags.end)):
        raise NotACall
    return (yield from read_parameters(cursor, tools, tags, name, *_CLOSERS))


QWEN_XML = Dialect(
    name="qwen-xml",
    families="Qwen3-Coder, Qwen 3.5, Seed-OSS, Step 3.5, Nemotron 3, MiMo; Llama 3.1 and Functionary 3.1 with JSON inside",
    example="<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
    openers=("<tool_call>", _SEED_OPENER, "<function="),
    read=_read,
    ignored_markers=("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>", "<seed:eos>"),
    reasoning_markers=(("<seed:think>", "</seed:think>"),),
)
