"""The JSON value or key that one quoted or unquoted word of malformed JSON stands for, if there is exactly one.

Used by `json_repair`, whose docstring has the table of rules. Looks at one word at a time and knows nothing of the text around it.
"""

from __future__ import annotations

import json
import re

__all__ = ["is_plain_word", "key_as_json", "quoted_as_json", "value_as_json"]

_CONSTANTS = {"true": "true", "True": "true", "false": "false", "False": "false", "null": "null", "None": "null"}
_NO_VALUES = frozenset({"true", "false", "null", "none", "nil", "nan", "inf", "infinity", "undefined"})
"""In lower case: words that are a constant in some language and text in another, unless `_CONSTANTS` has this spelling."""
_NUMBER = re.compile(r"(?P<sign>-?)(?P<whole>0|[1-9][0-9]*)?(?:\.(?P<part>[0-9]*))?(?P<power>[eE][+-]?[0-9]+)?")
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){2,}")
_BROKEN_NUMBER = re.compile(r"[-+.]*(?:0[xXoObB][0-9a-fA-F_]*|[\d_][\d_.]*(?:[eE][-+]*[\d_.]*)?[nNlLjJ]?)")
"""Matches in linear time: each part begins with a character that the one before cannot contain."""
_CUT_OFF = re.compile(r"[-+.]*\d.*[-+./@$]", re.DOTALL)
_KEY_NUMBER = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?")
_PLAIN_WORD = re.compile(r"[^\W\d_][\w.-]*")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\(\')|\\|(")')


def value_as_json(word: str) -> str | None:
    """Return an unquoted word as JSON: a constant, a number, or text. None if it may be more than one of these."""
    constant = _CONSTANTS.get(word)
    if constant is not None:
        return constant
    return _write_number(word) or (json.dumps(word) if _is_text(word) else None)


def key_as_json(word: str) -> str | None:
    """Return an unquoted key as JSON; None if languages that allow it give it different names, such as `True` or `1e3`."""
    if _KEY_NUMBER.fullmatch(word) or word in ("true", "false", "null"):
        return json.dumps(word)
    return json.dumps(word) if _is_text(word) else None


def quoted_as_json(body: str) -> str | None:
    r"""Return the content of a quoted string as JSON; None if it has an escape that JSON does not define, other than `\'`."""
    parts: list[str] = []
    end = 0
    for match in _ESCAPE.finditer(body):
        if match.group() == "\\":
            return None
        parts += (body[end : match.start()], match[1] or (r"\"" if match[2] else match.group()))
        end = match.end()
    try:
        return json.dumps(json.loads(f'"{"".join(parts)}{body[end:]}"', strict=False))
    except ValueError:
        return None


def is_plain_word(word: str) -> bool:
    """Return whether the word is a word of a language: it begins with a letter and is not a constant."""
    return _PLAIN_WORD.fullmatch(word) is not None and word.lower() not in _NO_VALUES


def _is_text(word: str) -> bool:
    if word.lower().lstrip("+-") in _NO_VALUES or "..." in word:
        return False
    return _VERSION.fullmatch(word) is not None or not (_is_damaged_number(word) or _CUT_OFF.fullmatch(word))


def _is_damaged_number(word: str) -> bool:
    return _BROKEN_NUMBER.fullmatch(word) is not None and any(letter.isdigit() for letter in word)


def _write_number(text: str) -> str | None:
    """Return a number in JSON's notation, with a digit before and after the point; None if the text is not a number."""
    found = _NUMBER.fullmatch(text)
    if found is None or not (found["whole"] or found["part"]):
        return None
    part = "" if found["part"] is None else f".{found['part'] or '0'}"
    return f"{found['sign']}{found['whole'] or '0'}{part}{found['power'] or ''}"
