"""Remove registered values, such as tokens, from everything that is recorded or sent.

The engine redacts encoded JSON, in which a value is escaped: once in a text, twice in JSON that is itself a text. Knows values, not where
they come from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

__all__ = ["SHORTEST_SECRET", "SecretValues"]

SHORTEST_SECRET: Final = 6
"""Fewer characters occur by chance in ordinary text."""
_HIDDEN: Final = b"***"
_ESCAPE: Final = rb"\\u[0-9a-fA-F]{4}|\\."
_STRING: Final = rb'"(?:[^"\\]|\\.)*+"'
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class SecretValues:
    """A `Redactor` that replaces each of these values by `***`, also escaped for JSON or for a URL.

    Its representation shows none of them.

    Args:
        values: At least `SHORTEST_SECRET` characters each.
    """

    __slots__ = ("_count", "_numbers", "_texts")

    def __init__(self, values: Iterable[str]) -> None:
        given = sorted(set(values), key=len, reverse=True)
        self._count = len(given)
        forms = sorted({form for value in given for form in _forms(value)}, key=len, reverse=True)
        # An escape is one unit: a value `n1234` is not in `\n1234`, and what is left would be no JSON.
        self._texts = re.compile(b"(" + b"|".join(map(re.escape, forms)) + b")|" + _ESCAPE, re.DOTALL) if forms else None
        numbers = [value.encode() for value in given if _NUMBER.fullmatch(value)]
        alone = rb"(?<![\w.+-])(" + b"|".join(map(re.escape, numbers)) + rb")(?![\w.+-])"
        self._numbers = re.compile(b"(" + _STRING + b")|" + alone, re.DOTALL) if numbers else None

    def redact(self, body: bytes) -> bytes:
        """Return `body` without the values. Valid JSON in, valid JSON out: a number that is a value becomes a text."""
        if self._texts is None:
            return body
        if self._numbers is not None:
            body = self._numbers.sub(self._without_number, body)
        return self._texts.sub(lambda found: _HIDDEN if found[1] is not None else found[0], body)

    def _without_number(self, found: re.Match[bytes]) -> bytes:
        return found[0] if found[1] is not None else b'"' + _HIDDEN + b'"'

    def __repr__(self) -> str:
        return f"<{self._count} secret values>"


def _forms(value: str) -> set[bytes]:
    """Return the value as it is in a JSON text, in JSON within a JSON text, and in a URL."""
    forms = {quote(value, safe=""), quote(value), quote_plus(value)}
    forms |= {re.sub("%..", lambda found: found[0].lower(), form) for form in forms}
    once = {json.dumps(value, ensure_ascii=plain)[1:-1] for plain in (True, False)}
    once |= {form.replace("/", "\\/") for form in once}
    twice = {json.dumps(form, ensure_ascii=plain)[1:-1] for form in once for plain in (True, False)}
    return {form.encode("utf-8", "surrogatepass") for form in forms | once | twice}
