"""GPT-OSS and LLM-jp 4: messages on channels; a message with a recipient is a call.

    <|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>

The recipient may stand before the channel. The analysis channel is reasoning, unless it has a recipient. If a server dropped the tokens, an
object directly follows the recipient: `commentary to=functions.get_weather json{"city": "Paris"}`. LLM-jp 4 writes a space
after each token.

Source: the harmony response format of gpt-oss; MLX LM's tool parser for LLM-jp 4.
"""

from __future__ import annotations

import re

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import MAX_HEADER_CHARS, KnownTools
from callgate.models.dialects.marked_json import read_arguments
from callgate.models.dialects.schema_matching import single_text_argument
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["HARMONY"]

_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_ROLES = frozenset({"user", "assistant", "system", "developer", "tool", "all"})
"""Recipients that are not tools."""
_MESSAGE = "<|message|>"
_OTHER_MESSAGES = ("<|start|>", *_ENDS)
_FUNCTION_HEADER = re.compile(r"(?:<\|channel\|>)?\s*(?:\w+\s+)?to=functions\.([\w.\-]+)\s*(?:(?:<\|constrain\|>)?\s*(?:json|code))?\s*")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    header, marker = yield from _read_header(cursor)
    recipient = (_FUNCTION_HEADER.fullmatch if marker == "{" else _RECIPIENT.search)(opener + header)
    if marker == "{" and (recipient is None or not tools.may_call(recipient[1])):
        raise NotACall
    if recipient is None or recipient[1] in _ROLES:
        return
    yield from cursor.skip_space()
    name = tools.clean_name(recipient[1])
    if (yield from cursor.peek()) == "{":
        text = yield from read_arguments(cursor, *_ENDS, stops=("<|start|>", "<|channel|>", _MESSAGE, "to=functions."))
        yield from cursor.skip_space()
        yield from cursor.take(*_ENDS)
    else:
        text = yield from _read_text_argument(cursor, tools, name, header)
    yield FoundCall(name=name, arguments=text)


def _read_header(cursor: TextCursor) -> Incremental[tuple[str, str]]:
    """Read to the token before the body, or to a body that follows without it, which is not consumed.

    The header may have several lines, if each of them begins with a token or the recipient.
    """
    lines: list[str] = []
    while True:
        line, marker = yield from cursor.read_until(_MESSAGE, *_OTHER_MESSAGES, "\n", "{", end=True, limit=MAX_HEADER_CHARS)
        lines.append(line)
        if marker in ("", *_OTHER_MESSAGES):
            raise NotACall
        if marker != "\n":
            cursor.give_back("{" if marker == "{" else "")
            return " ".join(lines), marker
        yield from cursor.skip_space()
        if not (yield from cursor.at_any("<|", "to=", "{")):
            raise NotACall


def _read_text_argument(cursor: TextCursor, tools: KnownTools, name: str, header: str) -> Incremental[str]:
    """Read a body that is not an object: no text, or text for a tool that takes only text."""
    body = (yield from cursor.read_until(*_ENDS))[0].strip()
    text = "{}" if not body else None if "<|constrain|>" in header else single_text_argument(body, tools.schema(name))
    if text is None:
        raise NotACall
    return text


HARMONY = Dialect(
    name="harmony",
    families="GPT-OSS, LLM-jp 4",
    example='<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
    openers=("<|channel|>", "to=", "commentary to=", "analysis to="),
    read=_read,
    ignored_markers=(
        "<|start|>assistant",
        "<|start|> assistant",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        *(f"<|channel|>{space}{channel}<|message|>" for channel in ("final", "commentary") for space in ("", " ")),
    ),
    reasoning_markers=(
        ("<|channel|>analysis<|message|>", "<|end|>"),
        ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
        ("<|channel|> analysis<|message|>", "<|end|>"),
        ("<|channel|> analysis<|message|>", "<|channel|> final<|message|>"),
        ("analysis<|message|>", "<|end|>"),
    ),
)
