"""Repair JSON that is complete but malformed, where there is only one thing it can mean.

A repair library guesses where this must not: it completes what was cut off, merges objects, swallows keys, takes prose for values. So its
answer is only believed if it says what the text says: the text is read into tokens here, its brackets must close, and its words, in their
order, must be the keys and values of the answer. Pure. Off unless the host asks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from callgate._json import strict_object, strict_value
from callgate._json.text import SURROGATE
from callgate._limits import Limits
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated

__all__ = ["repair_text"]

_TOKEN = re.compile(
    r"""(?P<white>\s+)
    | (?P<skipped>/\*.*?(?:\*/|\Z) | //[^\n]* | \.\.\.(?!\w) | ```(?:\w+(?=\s))? )
    | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<mark>[,:])
    | (?P<double>"(?:[^"\\]|\\.)*") | (?P<single>'(?:[^'\\]|\\.)*') | (?P<curly>“[^”]*”)
    | (?P<key>\w+"(?=\s*:))
    | (?P<bare>[^\s"'“”\[\]{},:]+)
    | (?P<broken>.)""",
    re.DOTALL | re.VERBOSE,
)
_WORDS = ("double", "single", "curly", "key", "bare")
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_BAD_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\(.)', re.DOTALL)

Token = tuple[str, str]


def repair_text(text: str, limits: Limits) -> tuple[bool, object]:
    """Whether `text` has one meaning as JSON, and that meaning. Valid JSON means itself; what was cut off, and nothing, mean nothing."""
    try:
        value = strict_value(text, limits)
        return value not in (None, "") or text.strip() == "null", value
    except (ArgumentsMalformed, ArgumentsTruncated) as error:
        if error.code not in ("invalid_json", "truncated"):
            return False, None
    if len(text) > limits.repair_bytes or len(text.encode("utf-8", "replace")) > limits.repair_bytes or SURROGATE.search(text):
        return False, None
    tokens = _tokens(text)
    if tokens is None or not _is_complete(tokens):
        return False, None
    return _checked(_guessed(text), tokens, limits)


def _guessed(text: str) -> object:
    import json_repair

    try:
        return json_repair.loads(text, skip_json_loads=True)
    except Exception:
        return None


def _checked(guess: object, tokens: list[Token], limits: Limits) -> tuple[bool, object]:
    if not isinstance(guess, (dict, list)) or not _says_the_same(guess, tokens):
        return False, None
    try:
        return True, strict_object({"guess": guess}, limits)["guess"]
    except ArgumentsMalformed:
        return False, None


def _tokens(text: str) -> list[Token] | None:
    found = [(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(text)]
    if any(kind == "broken" for kind, _ in found):
        return None
    return [token for token in found if token[0] not in ("white", "skipped")]


def _is_complete(tokens: list[Token]) -> bool:
    return all(depth >= 0 for depth in _depths(tokens)) and next(reversed([0, *_depths(tokens)])) == 0


def _depths(tokens: list[Token]) -> Iterator[int]:
    depth = 0
    for kind, _ in tokens:
        depth += {"open": 1, "close": -1}.get(kind, 0)
        yield depth


def _says_the_same(guess: object, tokens: list[Token]) -> bool:
    words = [token for token in tokens if token[0] in _WORDS]
    said = list(_said(guess))
    if len(words) != len(said) or not all(_means(word, value) for word, value in zip(words, said, strict=True)):
        return False
    roots = sum(1 for depth, (kind, _) in zip(_depths(tokens), tokens, strict=True) if kind == "close" and depth == 0)
    opened = sum(1 for kind, _ in tokens if kind == "open")
    twice = [text for _, text in tokens[:2]] == ["{", "{"] and [text for _, text in tokens[-2:]] == ["}", "}"]
    return _containers(guess) == opened + (roots > 1) - twice and (roots < 2 or isinstance(guess, list))


def _said(value: object) -> Iterator[object]:
    """Keys and scalars in the order of writing."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _said(item)
    elif isinstance(value, list):
        for item in value:
            yield from _said(item)
    else:
        yield value


def _containers(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_containers, value.values()))
    return 1 + sum(map(_containers, value)) if isinstance(value, list) else 0


def _means(token: Token, value: object) -> bool:
    """Whether one word of the text can be read as `value`."""
    kind, text = token
    if kind == "bare":
        return value == text if isinstance(value, str) else _is_constant(text, value)
    return isinstance(value, str) and value == (text[:-1] if kind == "key" else _unquoted(text, kind))


def _is_constant(text: str, value: object) -> bool:
    if text in _CONSTANTS:
        return value is _CONSTANTS[text]
    if value is None or isinstance(value, bool) or not _NUMBER.fullmatch(text):
        return False
    return isinstance(value, (int, float)) and (int(text) if text.lstrip("-").isdigit() else float(text)) == value


def _unquoted(text: str, kind: str) -> str | None:
    """What a quoted word says; escapes that JSON does not know stand for their letter."""
    body = _BAD_ESCAPE.sub(lambda match: match.group() if match[1] else match[2], text[1:-1])
    if kind != "double":
        body = re.sub(r'(?<!\\)"', r"\"", body)
    try:
        return str(json.loads(f'"{body}"', strict=False))
    except ValueError:
        return None
