"""Errors for arguments that are not a JSON object. Each reason has one function, for text and mappings alike.

Every message has a maximum length: keys are cut, and the text itself is never repeated.
"""

from __future__ import annotations

from typing import NoReturn

from callgate._engine_limits import Limits
from callgate._json.malformed_text import clip
from callgate.errors import ArgumentsMalformed, ArgumentsTruncated

AGAIN = "Send the arguments again as one JSON object."


def invalid(cause: str) -> NoReturn:
    raise ArgumentsMalformed(f"The arguments are not valid JSON: {cause}. {AGAIN}", code="invalid_json") from None


def not_plain(fact: str) -> NoReturn:
    raise ArgumentsMalformed(f"The arguments are a mapping {fact}. Hand in plain JSON data.", code="invalid_json")


def not_object(value: object) -> NoReturn:
    kind = {"list": "a list", "str": "a string", "bool": "a boolean"}.get(type(value).__name__, "a number")
    raise ArgumentsMalformed(f"The arguments are {kind}, not an object. {AGAIN}", code="not_object")


def truncated() -> NoReturn:
    raise ArgumentsTruncated(
        "The arguments were cut off: they end inside an object, a list or a string. Nothing was run. Send the whole call again,"
        " in smaller parts if it met a length limit."
    ) from None


def duplicate_key(key: str) -> NoReturn:
    raise ArgumentsMalformed(
        f"The key {clip(key)} stands twice in one object, so it is unclear which value counts. Send it once.", code="duplicate_key"
    )


def bad_unicode(fact: str) -> NoReturn:
    raise ArgumentsMalformed(f"The arguments {fact}. Send them again as valid Unicode text.", code="bad_unicode") from None


def bad_number(fact: str) -> NoReturn:
    raise ArgumentsMalformed(
        f"In the arguments a number is {fact}. Send a JSON number within range, or text where text will do.", code="bad_number"
    ) from None


def too_deep(limits: Limits) -> NoReturn:
    raise ArgumentsMalformed(
        f"The arguments nest deeper than {limits.arguments_depth} levels, which is the limit. Send a flatter object.", code="too_deep"
    ) from None


def too_large(size: int, limits: Limits) -> NoReturn:
    raise ArgumentsMalformed(
        f"The arguments have at least {size} bytes; {limits.arguments_bytes} is the limit. Send less at a time.", code="too_large"
    )


def too_many_keys(limits: Limits) -> NoReturn:
    raise ArgumentsMalformed(
        f"The arguments hold more than {limits.arguments_keys} keys, which is the limit. Send less at a time.", code="too_large"
    )
