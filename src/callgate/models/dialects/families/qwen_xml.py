"""Qwen3-Coder and Qwen 3.5, Seed-OSS, Step 3.5, Nemotron 3, MiMo; Llama 3.1 and Functionary with JSON inside: one tag per parameter.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Source: the chat templates of Qwen3-Coder and Seed-OSS; Meta's prompt format for Llama 3.1 (`<function=name>{...}</function>`).
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.shape import Dialect, Reads
from callgate.models.dialects.tagged import Tags, read_tagged_calls, spaced

__all__ = ["QWEN_XML"]

_TAGS = Tags(
    call=spaced("<function=", "<function name="),
    end=spaced("</function>"),
    parameter=spaced("<parameter=", "<parameter name="),
    end_parameter=spaced("</parameter>"),
    trim=True,
)
_CLOSERS = ("</tool_call>", "</seed:tool_call>")


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    if opener == "<function=":
        cursor.unread(opener)
    yield from read_tagged_calls(cursor, tools, _TAGS, *_CLOSERS)


QWEN_XML = Dialect(
    name="qwen-xml",
    families="Qwen3-Coder, Qwen 3.5, Seed-OSS, Step 3.5, Nemotron 3, MiMo; Llama 3.1 and Functionary 3.1 with JSON inside",
    example="<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
    openers=("<tool_call>", "<seed:tool_call>", "<function="),
    read=_read,
    silent=("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>", "<seed:eos>"),
    thoughts=(("<seed:think>", "</seed:think>"),),
)
