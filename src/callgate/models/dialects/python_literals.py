"""Convert Python literals and keyword arguments to JSON text.

Accepts `True` and `true`, `None` and `null`, both kinds of quotes, tuples, sets, reserved words as keywords, and line breaks
in strings. The text is parsed and never evaluated: names and expressions are errors. Bounded in depth, linear in
length. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

__all__ = ["parse_keyword_arguments", "python_to_json"]

Item = TypeVar("Item")
_MAX_NESTING = 64
_SPACE = re.compile(r"(?:\s+|#[^\n]*\n)*")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])", re.ASCII)
_NUMBER_PARTS = re.compile(r"(?P<sign>[-+]?)(?P<whole>0|[1-9]\d*)?(?:\.(?P<part>\d*))?(?P<power>[eE][-+]?\d+)?", re.ASCII)
_PADDED = re.compile(r"0\d+", re.ASCII)
_STRING = re.compile(
    r"""(?P<prefix>[rRuUbBfF]{0,2})(?:'''(?P<a>.*?)(?<!\\)'''|\"\"\"(?P<b>.*?)(?<!\\)\"\"\"|'(?P<c>[^'\\]*(?:\\.[^'\\]*)*)'|"(?P<d>[^"\\]*(?:\\.[^"\\]*)*)")""",
    re.DOTALL,
)
_NAME = re.compile(r"[^\W\d][\w.\-]*")
_CONSTANTS = {"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}
_ESCAPE = re.compile(r"\\(\n|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_COMMON_ESCAPES = re.compile(r"""[^\\]*+(?:\\(?:["'\\/bfnrt]|u[0-9a-fA-F]{4})[^\\]*+)*+""")
_ESCAPED_CHARACTERS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
    "/": "/",
}


def python_to_json(text: str) -> str:
    """Return a Python literal as JSON.

    The text may also be malformed JSON. So its strings have only the escapes that mean the same in both, such as a line break: in a
    path like `C:\\apps`, Python would read a control character.

    Raises:
        ValueError: It is not a literal, or nested too deeply.
    """
    reader = _LiteralParser(text, common_escapes=True)
    value = reader.read_value(0)
    reader.skip_space()
    if reader.pos != len(text):
        raise ValueError("more than one literal")
    return value


def parse_keyword_arguments(text: str) -> tuple[list[str], dict[str, str]]:
    """Return the positional and the keyword arguments between a call's brackets, as JSON.

    Raises:
        ValueError: It is not a list of literals, or repeats a name.
    """
    reader = _LiteralParser(text)
    positional: list[str] = []
    named: dict[str, str] = {}
    while True:
        reader.skip_space()
        if reader.pos == len(text):
            return positional, named
        name = reader.read_keyword()
        value = reader.read_value(0)
        if name is None:
            positional.append(value)
        elif name in named:
            raise ValueError(f"{name} is given twice")
        else:
            named[name] = value
        reader.read_separator(len(text))


class _LiteralParser:
    """Parses the literals of one text."""

    def __init__(self, text: str, *, common_escapes: bool = False) -> None:
        self.text = text
        self.pos = 0
        self._common_escapes = common_escapes
        """Whether strings have only the escapes that Python and JSON share."""

    def skip_space(self) -> None:
        found = _SPACE.match(self.text, self.pos)
        self.pos = found.end() if found else self.pos

    def read_keyword(self) -> str | None:
        """Consume and return the name before an equals sign; None if there is none."""
        found = _NAME.match(self.text, self.pos) or _STRING.match(self.text, self.pos)
        if found is None:
            return None
        end = _SPACE.match(self.text, found.end())
        at = end.end() if end else found.end()
        if self.text[at : at + 1] != "=" or self.text[at : at + 2] == "==":
            return None
        self.pos = at + 1
        return found.group().strip("\"'")

    def read_separator(self, end: int) -> None:
        self.skip_space()
        if self.pos == end:
            return
        if self.text[self.pos] != ",":
            raise ValueError("no comma")
        self.pos += 1

    def read_value(self, depth: int) -> str:
        self.skip_space()
        mark = self.text[self.pos : self.pos + 1]
        if depth > _MAX_NESTING:
            raise ValueError("too deep")
        if mark == "{":
            return self._read_object_or_set(depth)
        if mark in ("[", "("):
            return "[" + ", ".join(self._read_items("]" if mark == "[" else ")", depth, self.read_value)) + "]"
        return self._read_scalar()

    def _read_object_or_set(self, depth: int) -> str:
        """Return a dictionary as an object and a set as a list."""
        items = self._read_items("}", depth, self._read_member)
        keys = {key is None for key, _ in items}
        if keys == {True}:
            return "[" + ", ".join(value for _, value in items) + "]"
        if True in keys:
            raise ValueError("no colon")
        return "{" + ", ".join(f"{key}: {value}" for key, value in items) + "}"

    def _read_items(self, closer: str, depth: int, item: Callable[[int], Item]) -> list[Item]:
        found: list[Item] = []
        self.pos += 1
        while True:
            self.skip_space()
            if self.text.startswith(closer, self.pos):
                self.pos += 1
                return found
            found.append(item(depth + 1))
            self.skip_space()
            if self.text.startswith(",", self.pos):
                self.pos += 1
            elif not self.text.startswith(closer, self.pos):
                raise ValueError("no comma")

    def _read_member(self, depth: int) -> tuple[str | None, str]:
        """Return the key and the value of a dictionary's member; no key for an element of a set."""
        name = self.read_value(depth)
        self.skip_space()
        if not self.text.startswith(":", self.pos):
            return None, name
        self.pos += 1
        return name if name[0] == '"' else json.dumps(name), self.read_value(depth)

    def _read_scalar(self) -> str:
        found = _STRING.match(self.text, self.pos)
        if found:
            return self._read_strings(found)
        found = _NUMBER.match(self.text, self.pos)
        if found:
            self.pos = found.end()
            return _write_number(found.group())
        found = _NAME.match(self.text, self.pos)
        if found is None or found.group() not in _CONSTANTS:
            raise ValueError("no literal")
        self.pos = found.end()
        return _CONSTANTS[found.group()]

    def _read_strings(self, found: re.Match[str] | None) -> str:
        """Consume one string, or several adjacent ones. An f-string with a replacement field has no known value."""
        whole: list[str] = []
        while found:
            prefix, *bodies = found.groups()
            body = next(group for group in bodies if group is not None)
            if "f" in prefix.lower() and "{" in body:
                raise ValueError("no literal")
            is_raw = "r" in prefix.lower()
            if self._common_escapes and not is_raw and not _COMMON_ESCAPES.fullmatch(body):
                raise ValueError("an escape that JSON does not have")
            whole.append(body if is_raw else _ESCAPE.sub(_decode_escape, body))
            self.pos = found.end()
            self.skip_space()
            found = _STRING.match(self.text, self.pos)
        return json.dumps("".join(whole), ensure_ascii=False)


def _decode_escape(found: re.Match[str]) -> str:
    body = found[1]
    if body in _ESCAPED_CHARACTERS:
        return _ESCAPED_CHARACTERS[body]
    if body[0] in "xuU":
        return chr(min(int(body[1:], 16), 0x10FFFF)) if len(body) > 1 else found[0]
    return chr(int(body, 8)) if body.isdigit() and body.isascii() and int(body[0]) < 8 else found[0]


def _write_number(text: str) -> str:
    """Return a number as JSON, digit for digit. Digits that begin with a zero, which are no number, become text."""
    if _PADDED.fullmatch(text):
        return json.dumps(text)
    found = _NUMBER_PARTS.fullmatch(text.replace("_", ""))
    if found is None or not (found["whole"] or found["part"]):
        raise ValueError("no number")
    part = "" if found["part"] is None else f".{found['part'] or '0'}"
    return f"{found['sign'].strip('+')}{found['whole'] or '0'}{part}{found['power'] or ''}"
