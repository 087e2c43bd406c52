"""Llama 3.1 to 4: JSON, Python calls, or code for an interpreter, after the Python tag.

    <|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}
    <|python_start|>[get_weather(city="Paris")]<|python_end|>

Source: Meta's prompt formats for Llama 3.1 and Llama 4.
"""

from __future__ import annotations

from callgate.models.dialects.dialect import Dialect, ParsedCalls
from callgate.models.dialects.known_tools import KnownTools
from callgate.models.dialects.marked_json import MarkedJson
from callgate.models.dialects.python_calls import read_python_calls
from callgate.models.dialects.schema_matching import peek_known_name, single_text_argument
from callgate.models.dialects.text_and_call_parts import FoundCall
from callgate.models.dialects.text_cursor import Incremental, NotACall, TextCursor

__all__ = ["LLAMA_PYTHON_TAG"]

_ENDS = ("<|python_end|>", "<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>")
_read_json = MarkedJson(*_ENDS)
_INTERPRETERS = ("python", "code_interpreter", "ipython")


def _read(cursor: TextCursor, tools: KnownTools, opener: str) -> ParsedCalls:
    yield from cursor.skip_space()
    if (yield from cursor.peek()) == "{" or (yield from cursor.at("[{")):
        yield from _read_json(cursor, tools, opener)
        return
    interpreter = next((name for name in _INTERPRETERS if single_text_argument("code", tools.schema(name))), "")
    if interpreter and not (yield from cursor.at("[")) and not (yield from peek_known_name(cursor, tools)):
        yield (yield from _read_code(cursor, tools, interpreter))
        return
    yield from read_python_calls(cursor, tools)
    yield from cursor.skip_space()
    yield from cursor.take(*_ENDS)


def _read_code(cursor: TextCursor, tools: KnownTools, interpreter: str) -> Incremental[FoundCall]:
    """Read code for a known tool that takes only code."""
    code, marker = yield from cursor.read_until(*_ENDS, end=True)
    arguments = single_text_argument(code.strip(), tools.schema(interpreter))
    if arguments is None:
        raise NotACall
    return FoundCall(name=interpreter, arguments=arguments, closed="sealed" if marker else "finished")


LLAMA_PYTHON_TAG = Dialect(
    name="llama-python-tag",
    families="Llama 3.1, 3.2, 3.3, 4",
    example='<|python_start|>[get_weather(city="Paris")]<|python_end|>',
    openers=("<|python_tag|>", "<|python_start|>"),
    read=_read,
    ignored_markers=("<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>", "<|header_start|>assistant<|header_end|>"),
)
