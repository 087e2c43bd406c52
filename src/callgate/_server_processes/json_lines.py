"""Read and write one message as JSON, within bounds. Messages of a server are untrusted. Pure; knows no form of a message."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

__all__ = ["UnreadableJson", "answered_ids", "encoded", "read_json"]

_MAX_DEPTH = 200
_DEPTH_MARKS = (b"[", b"{")

_decode = msgspec.json.Decoder().decode
encoded = msgspec.json.Encoder().encode
"""Encode a message as JSON without a line end."""

_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
"""A text, also one without an end, so that each byte is looked at once; or a bracket."""
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
"""An escape in JSON: a surrogate pair, half of one as group 1, or any other."""
_TEXT_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"?|(?<![\d.eE+-])-?(?:\d[\d.]*[eE]\+?\d{3}|\d{300})[\d.eE+-]*', re.DOTALL)
"""A text, or a number that may be out of range. It begins only where a number can, so that each byte is looked at once."""
_SLOW_NUMBER = re.compile(rb"\d[eE]\+?0*[1-9]\d\d")
_MOST_SLOW = 10_000
"""How many numbers from 1e100 on a large message may have. msgspec takes 7 µs for each, so that 10 MiB of them would take ten seconds."""
_SMALL_BYTES = 65_536
_OUT_OF_RANGE = "out of range"
"""Part of msgspec's error for a number that fits neither an integer nor a double."""
_ID_AFTER = re.compile(rb"\s*:\s*(\d{1,18})\s*[,}]")


class UnreadableJson(Exception):
    """Bytes that are not JSON, or are nested too deeply.

    Args:
        why: A short text.
        code: `protocol_error` or `too_deep`.
    """

    def __init__(self, why: str, code: Literal["protocol_error", "too_deep"] = "protocol_error") -> None:
        super().__init__(why)
        self.code = code


def read_json(data: bytes | bytearray, *, mends: bool = True) -> object:
    """Return the value in `data`, of which the caller has checked the size.

    Args:
        mends: Whether what Python cannot have is read as what comes next to it instead of refused: an escaped half of a surrogate pair,
            which JavaScript writes where it has cut a text in the middle of a character, as U+FFFD; and a number that is out of range,
            such as `1e400`, as its text.

    Raises:
        UnreadableJson: It is not JSON, or is nested too deeply.
    """
    if len(data) > _SMALL_BYTES and data.count(b"e") + data.count(b"E") > _MOST_SLOW and len(_SLOW_NUMBER.findall(data)) > _MOST_SLOW:
        raise UnreadableJson(f"it has more than {_MOST_SLOW:,} numbers from 1e100 on")
    try:
        value: object = _decode(data)
    except RecursionError:
        raise UnreadableJson("it is nested too deeply", "too_deep") from None
    except (ValueError, MemoryError) as error:
        mended = _mend(data, error) if mends else data
        if mended != data:
            return read_json(mended, mends=False)
        if _OUT_OF_RANGE in str(error):
            raise UnreadableJson("it has a number that is out of range: larger than 1.8e308, or of very many digits") from None
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)[:100]
        raise UnreadableJson(f"it is not JSON: {why}") from None
    if sum(map(data.count, _DEPTH_MARKS)) > _MAX_DEPTH and _depth(value) > _MAX_DEPTH:
        raise UnreadableJson(f"it is nested more than {_MAX_DEPTH} levels deep", "too_deep")
    return value


def _mend(data: bytes | bytearray, error: Exception) -> bytes | bytearray:
    """Return JSON without halves of surrogate pairs; and without numbers that are out of range, if that is the error."""
    whole = _ESCAPE.sub(_replace_surrogate, data)
    return _TEXT_OR_NUMBER.sub(_limit_number, whole) if _OUT_OF_RANGE in str(error) else whole


def _limit_number(found: re.Match[bytes]) -> bytes:
    token = found.group()
    if token.startswith(b'"'):
        return token
    try:
        _decode(token)
    except ValueError as error:
        return b'"%b"' % token if _OUT_OF_RANGE in str(error) else token
    return token


def answered_ids(data: bytes | bytearray, answer_keys: frozenset[bytes]) -> tuple[int, ...]:
    """Return the id of the request that unreadable bytes seem to answer: a whole object with an id and an answer's key at its top level.

    A server that writes `NaN` or nests too deeply has answered, and its caller should not wait for the timeout.

    Args:
        answer_keys: The keys that only an answer has, with their quotation marks.
    """
    text = bytes(data).strip()
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return ()
    depth, found, answers = 0, None, False
    for token in _TOKENS.finditer(text):
        mark = token.group()
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and mark == b'"id"':
            after = _ID_AFTER.match(text, token.end())
            found = int(after.group(1)) if after else found
        elif depth == 1 and mark in answer_keys:
            answers = True
    return (found,) if found is not None and answers else ()


def _replace_surrogate(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape[1] is None else rb"\ufffd"


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        below: list[object] = []
        for node in level:
            items = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
            below += [item for item in items if isinstance(item, (dict, list))]
        level = below
    return depth
