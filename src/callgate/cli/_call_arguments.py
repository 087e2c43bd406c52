"""Read the arguments of a call from the command line: one JSON text, `-` for standard input, `@file`, or `key=value` words.

A JSON text is passed on unchanged; the engine reports its errors. The value of `key=value` is text, which validation converts to the
schema's type if nothing is lost; `key:=JSON` gives an exact value.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from callgate._limits_from_environment import timeout_from_environment
from callgate.errors import UsageError

__all__ = ["call_timeout", "read_arguments", "refuse_odd_text", "refuse_unused_arguments"]

_WORD = re.compile(r"(?P<key>[^=:\s][^=:]*)(?P<sign>:?=)(?P<value>.*)", re.DOTALL)
_FORMS = "Give one JSON object, key=value, key:=JSON, @file, or - for standard input."


def refuse_odd_text(**words: str | None) -> None:
    """Refuse words that a journal cannot store because they are not UTF-8.

    Raises:
        UsageError: A word is not UTF-8; names the word and its use.
    """
    for use, word in words.items():
        if word is not None and not word.isascii():
            try:
                word.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"The {use} {word[:80]!a} is not valid UTF-8, so the journal cannot store it. Give another.") from error


def refuse_unused_arguments(tool: str, arguments: str) -> None:
    """Refuse arguments for no tool.

    Raises:
        UsageError: They are given without a tool.
    """
    if arguments not in ("", "{}") and not tool:
        raise UsageError("--arguments is given without --tool, so nothing would be called. Add --tool NAME.")


def call_timeout(given: float | None) -> float:
    """Return the seconds for the whole call: those of `--timeout`, or the default.

    Raises:
        UsageError: They are not a finite number above 0.
    """
    if given is not None and not (math.isfinite(given) and given > 0):
        raise UsageError(f"--timeout is {given:g}; it must be a finite number of seconds above 0.")
    return timeout_from_environment() if given is None else given


def read_arguments(words: Sequence[str]) -> str | dict[str, object]:
    """Return the arguments as JSON text or as an object.

    Raises:
        UsageError: A word has none of the accepted forms, or a file cannot be read.
    """
    if not words:
        return {}
    if len(words) == 1 and (words[0] in ("-", "") or words[0][0] in "@{["):
        return _text(words[0])
    found: dict[str, object] = {}
    for word in words:
        key, value = _parse_pair(word)
        if key in found:
            raise UsageError(f"The argument '{key}' is given twice. Give it once; write a list as key:='[1, 2]'.")
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
        raise UsageError(f"The arguments file {word[1:]} cannot be read: {reason}. {_FORMS}") from error


def _parse_pair(word: str) -> tuple[str, object]:
    match = _WORD.fullmatch(word)
    if match is None:
        raise UsageError(f"'{word[:80]}' is not an argument. {_FORMS}")
    if match["sign"] == "=":
        return match["key"], match["value"]
    try:
        return match["key"], json.loads(match["value"])
    except ValueError as error:
        raise UsageError(f"'{match['key']}' is not followed by JSON: {error}. Use {match['key']}=... for plain text.") from error
