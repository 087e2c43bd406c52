"""Llama 3.1 to 4: JSON, Python calls, or code for an interpreter, behind the Python tag.

    <|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}
    <|python_start|>[get_weather(city="Paris")]<|python_end|>

Source: Meta's prompt formats for Llama 3.1 and Llama 4.
"""

from __future__ import annotations

from callgate.models.dialects.cursor import Cursor, NoCall, Wait
from callgate.models.dialects.fit import known_name, text_argument
from callgate.models.dialects.marked import Marked
from callgate.models.dialects.names import ToolNames
from callgate.models.dialects.parts import Found
from callgate.models.dialects.python_calls import python_calls
from callgate.models.dialects.shape import Dialect, Reads

__all__ = ["LLAMA_PYTHON_TAG"]

_ENDS = ("<|python_end|>", "<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>")
_JSON = Marked(*_ENDS)
_INTERPRETERS = ("python", "code_interpreter", "ipython")


def _read(cursor: Cursor, tools: ToolNames, opener: str) -> Reads:
    yield from cursor.white()
    if (yield from cursor.peek()) == "{" or (yield from cursor.at("[{")):
        yield from _JSON(cursor, tools, opener)
        return
    interpreter = next((name for name in _INTERPRETERS if text_argument("code", tools.schema(name))), "")
    if interpreter and not (yield from cursor.at("[")) and not (yield from known_name(cursor, tools)):
        yield (yield from _code(cursor, tools, interpreter))
        return
    yield from python_calls(cursor, tools)
    yield from cursor.white()
    yield from cursor.take(*_ENDS)


def _code(cursor: Cursor, tools: ToolNames, interpreter: str) -> Wait[Found]:
    """Code for a tool that exists and takes nothing but code."""
    code, mark = yield from cursor.until(*_ENDS, end=True)
    arguments = text_argument(code.strip(), tools.schema(interpreter))
    if arguments is None:
        raise NoCall
    return Found(name=interpreter, arguments=arguments, closed="sealed" if mark else "finished")


LLAMA_PYTHON_TAG = Dialect(
    name="llama-python-tag",
    families="Llama 3.1, 3.2, 3.3, 4",
    example='<|python_start|>[get_weather(city="Paris")]<|python_end|>',
    openers=("<|python_tag|>", "<|python_start|>"),
    read=_read,
    silent=("<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>", "<|header_start|>assistant<|header_end|>"),
)
