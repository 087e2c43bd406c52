"""The arguments of a call as they are typed: one JSON text, `-` for standard input, `@file`, or `key=value` words.

A JSON text is handed on untouched: what is wrong with it is for the engine to say. `key=value` is text, which the tool's schema turns
into what it asks for where nothing is lost; `key:=JSON` says it exactly.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from callgate.errors import UsageError

__all__ = ["read_arguments", "refuse_odd_text"]

_WORD = re.compile(r"(?P<key>[^=:\s][^=:]*)(?P<sign>:?=)(?P<value>.*)", re.DOTALL)
_FORMS = "Give one JSON object, key=value, key:=JSON, @file, or - for standard input."


def refuse_odd_text(**words: str | None) -> None:
    """Refuse names that a record cannot hold: what the shell handed over was no UTF-8.

    Raises:
        UsageError: Names the word and what it is for.
    """
    for use, word in words.items():
        if word is not None and not word.isascii():
            try:
                word.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"The {use} {word[:80]!a} is not valid UTF-8, so no record can hold it. Give another.") from error


def read_arguments(words: Sequence[str]) -> str | dict[str, object]:
    """What the words mean, as text for the engine to read, or as an object.

    Raises:
        UsageError: A word is none of the forms, or a file cannot be read.
    """
    if not words:
        return {}
    if len(words) == 1 and (words[0] in ("-", "") or words[0][0] in "@{["):
        return _text(words[0])
    found: dict[str, object] = {}
    for word in words:
        key, value = _pair(word)
        if key in found:
            raise UsageError(f"The argument '{key}' is given twice. Give it once; a list is key:='[1, 2]'.")
        found[key] = value
    return found


def _text(word: str) -> str:
    if word == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    if not word.startswith("@"):
        return word
    try:
        return Path(word[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The arguments' file {word[1:]} cannot be read: {reason}. {_FORMS}") from error


def _pair(word: str) -> tuple[str, object]:
    match = _WORD.fullmatch(word)
    if match is None:
        raise UsageError(f"'{word[:80]}' is no argument. {_FORMS}")
    if match["sign"] == "=":
        return match["key"], match["value"]
    try:
        return match["key"], json.loads(match["value"])
    except ValueError as error:
        raise UsageError(f"'{match['key']}' is not followed by JSON: {error}. Use {match['key']}=... for plain text.") from error
