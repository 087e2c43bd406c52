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
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?[0-9][0-9.eE+-]*+', re.DOTALL)
"""A text or a number of JSON. What is between them is never replaced, whatever a value looks like."""


class SecretValues:
    """A `Redactor` that replaces each of these values by `***`, also escaped for JSON or for a URL.

    Its representation shows none of them.

    Args:
        values: At least `SHORTEST_SECRET` characters each.
    """

    __slots__ = ("_count", "_found", "_numbers", "_unit")

    def __init__(self, values: Iterable[str]) -> None:
        given = frozenset(values)
        forms = sorted({form for value in given for form in _forms(value)}, key=len, reverse=True)
        any_form = b"|".join(map(re.escape, forms))
        self._count = len(given)
        self._numbers = frozenset(value.encode("utf-8", "surrogatepass") for value in given)
        self._found = re.compile(any_form) if forms else None
        # An escape is one unit: a value `n1234` is not in `\n1234`, and what would be left is not JSON.
        self._unit = re.compile(b"(" + any_form + rb")|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)

    def redact(self, body: bytes) -> bytes:
        """Return `body` without the values. Valid JSON in, valid JSON out: a number that is a value becomes a text."""
        if self._found is None or not self._found.search(body):
            return body
        return _TOKEN.sub(self._redact_token, body)

    def _redact_token(self, token: re.Match[bytes]) -> bytes:
        if token[0].startswith(b'"'):
            return self._unit.sub(lambda unit: unit[0] if unit[1] is None else _HIDDEN, token[0])
        return b'"' + _HIDDEN + b'"' if token[0] in self._numbers else token[0]

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
