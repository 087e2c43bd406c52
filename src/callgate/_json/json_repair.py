"""Repair JSON that is complete but malformed, if it has only one possible meaning.

The text is split into tokens, and the tokens are written as JSON. This repairs other quotes, words without quotes,
Python's constants, comments, code fences, and missing or additional commas. The result is parsed by the strict parser,
which refuses duplicate keys, missing values and several objects as usual. The time is proportional to the size of the
text. Repair libraries were measured and are not used: they complete truncated text, merge objects and treat prose as
values, and one of them needed five seconds for 16 KB of quotes. Pure. Used only if the host enables it.
"""

from __future__ import annotations

import json
import re

from callgate._engine_limits import Limits
from callgate._json import strict_value
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated

__all__ = ["repair_text"]

_TOKEN = re.compile(
    r"""(?P<skipped>\s+ | /\*.*?(?:\*/|\Z) | //[^\n]* | ```(?:\w+(?=\s))? )
    | (?P<gap>\.\.\.(?!\w))
    | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>,) | (?P<colon>:)
    | (?P<double>"[^"\\]*(?:\\.[^"\\]*)*") | (?P<single>'[^'\\]*(?:\\.[^'\\]*)*') | (?P<curly>“[^”]*”)
    | (?P<key>\w+"(?=\s*:))
    | (?P<bare>[-+.$@/]*\w[\w.$@/+-]*)
    | (?P<broken>.)""",
    re.DOTALL | re.VERBOSE,
)
_CLOSER = {"[": "]", "{": "}"}
_CONSTANTS = {"true": "true", "True": "true", "false": "false", "False": "false", "null": "null", "None": "null"}
_NO_VALUES = frozenset({"NaN", "Infinity", "-Infinity", "+Infinity", "undefined"})
_NUMBER = re.compile(r"(?P<sign>-?)(?P<whole>0|[1-9]\d*)?(?:\.(?P<part>\d*))?(?P<power>[eE][+-]?\d+)?", re.ASCII)
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\(.)|(")', re.DOTALL)

Token = tuple[str, str]


def repair_text(text: str, limits: Limits) -> tuple[bool, object]:
    """Return whether `text` has exactly one meaning as JSON, and the value that it means.

    Truncated and empty text have none.
    """
    try:
        value = strict_value(text, limits)
        return value not in (None, "") or text.strip() == "null", value
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        if error.code not in ("invalid_json", "truncated") or len(text.encode()) > limits.repair_bytes:
            return False, None
    tokens = _tokens(text)
    written = _Writer().write(tokens) if tokens else None
    if written is None:
        return False, None
    try:
        return True, strict_value(written, limits)
    except (ArgumentsMalformed, ArgumentsTruncated):
        return False, None


def _tokens(text: str) -> list[Token] | None:
    """Return the words and punctuation of `text`, without white space, comments and code fences.

    Return None if the text contains anything else.
    """
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "broken":
            return None
        if kind != "skipped":
            found.append((kind, match.group()))
    begin, end = [text for _, text in found[:2]], [text for _, text in found[-2:]]
    return found[1:-1] if begin == ["{", "{"] and end == ["}", "}"] else found


class _Writer:
    """Writes tokens as JSON, with exactly one comma between values."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.open: list[str] = []
        self.roots = 0
        self.before = ""
        """The kind of the value directly before the current token; empty if there is none."""
        self.comma = False
        self.gap = False

    def write(self, tokens: list[Token]) -> str | None:
        """Return the tokens as text, or None if a token is in the wrong place.

        Other errors are left to the strict parser.
        """
        for (kind, text), (following, _) in zip(tokens, [*tokens[1:], ("", "")], strict=True):
            if not self._take(kind, text, following):
                return None
        if self.open or not self.roots:
            return None
        written = "".join(self.out)
        return f"[{written}]" if self.roots > 1 else written

    def _take(self, kind: str, text: str, following: str) -> bool:
        match kind:
            case "comma":
                twice = self.comma and not self.gap
                self.comma, self.gap = True, False
                return not twice
            case "gap":
                self.gap = True
                return bool(self.open)
            case "colon":
                self.out.append(":")
                self.before, self.comma = "", False
                return True
            case "close":
                return self._close()
            case _:
                return self._value(kind, text, is_key=following == "colon")

    def _close(self) -> bool:
        if not self.open:
            return False
        self.out.append(_CLOSER[self.open.pop()])
        self._after("container")
        return True

    def _value(self, kind: str, text: str, *, is_key: bool) -> bool:
        word = text if kind == "open" else _word(kind, text, is_key=is_key)
        separated = self.comma or self.gap or not (self.before == kind == "bare")
        if word is None or not separated or (kind != "open" and not self.open):
            return False
        if self.before:
            self.out.append(",")
        self.out.append(word)
        if kind == "open":
            self.roots += not self.open
            self.open.append(text)
        self._after("" if kind == "open" else kind)
        return True

    def _after(self, kind: str) -> None:
        self.before, self.comma, self.gap = kind, False, False


def _word(kind: str, text: str, *, is_key: bool) -> str | None:
    """Return one word as JSON; None if it stands for no JSON value, such as `NaN`."""
    if kind == "key":
        return json.dumps(text[:-1])
    if kind != "bare":
        return _quoted(text[1:-1])
    if is_key:
        return json.dumps(text)
    if text in _NO_VALUES:
        return None
    return _CONSTANTS.get(text) or _number(text) or json.dumps(text)


def _quoted(body: str) -> str | None:
    """Return the content of a string as JSON. The backslash of an escape that JSON does not have is removed."""
    escaped = _ESCAPE.sub(lambda match: match[1] or (r"\"" if match[2] else match[0]), body)
    try:
        return json.dumps(json.loads(f'"{escaped}"', strict=False))
    except ValueError:
        return None


def _number(text: str) -> str | None:
    """Return a number in JSON's notation, with a digit before and after the point; None if the text is not a number."""
    found = _NUMBER.fullmatch(text)
    if found is None or not (found["whole"] or found["part"]):
        return None
    part = "" if found["part"] is None else f".{found['part'] or '0'}"
    return f"{found['sign']}{found['whole'] or '0'}{part}{found['power'] or ''}"
