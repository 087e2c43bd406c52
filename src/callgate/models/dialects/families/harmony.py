"""GPT-OSS: messages on channels; a message with a recipient is a call.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

The recipient may stand before the channel. The analysis channel is reasoning, unless it has a recipient. If a server dropped the tokens, an
object directly follows the recipient: `commentary to=functions.get_weather json{"city": "Paris"}`.

Source: the harmony response format of gpt-oss.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.schema_matching import single_text_argument
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["HARMONY"]

_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_MESSAGE = "<|message|>"
_FUNCTION_HEADER = re.compile(r"(?:\w+ )?to=functions\.([\w.\-]+)\s*(?:json|code)?\s*")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    header, marker = yield from cursor.read_until(_MESSAGE, "\n", "{")
    cursor.give_back("{" if marker == "{" else "")
    recipient = (_FUNCTION_HEADER.fullmatch if marker == "{" else _RECIPIENT.search)(opener + header)
    if marker == "\n" or (marker == "{" and (recipient is None or not tools.may_call(recipient[1]))):
        raise NotACall
    if recipient is None:
        return
    yield from cursor.skip_space()
    name = tools.clean_name(recipient[1])
    if (yield from cursor.peek()) == "{":
        text = yield from cursor.read_bracketed()
        yield from cursor.skip_space()
        yield from cursor.take(*_ENDS)
    else:
        text = yield from _read_text_argument(cursor, tools, name, header)
    yield FoundCall(name=name, arguments=text)


def _read_text_argument(cursor: TextCursor, tools: KnownTools, name: str, header: str) -> Incremental[str]:
    """Read a body that is not an object: no text, or text for a tool that takes only text."""
    body = (yield from cursor.read_until(*_ENDS))[0].strip()
    text = "{}" if not body else None if "<|constrain|>" in header else single_text_argument(body, tools.schema(name))
    if text is None:
        raise NotACall
    return text


HARMONY = Dialect(
    name="harmony",
    families="GPT-OSS",
    example='<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    openers=("<|channel|>", "to=", "commentary to=", "analysis to="),
    read=_read,
    ignored_markers=(
        "<|start|>assistant",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|channel|>final<|message|>",
        "<|channel|>commentary<|message|>",
    ),
    reasoning_markers=(
        ("<|channel|>analysis<|message|>", "<|end|>"),
        ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
        ("analysis<|message|>", "<|end|>"),
    ),
)
