"""Convert the errors of msgspec and pydantic to validation problems: the place, what was expected, and what it got.

Used for errors that a schema cannot express, such as those of a pydantic validator or a dataclass's `__post_init__`.
Long error texts are cut, and a value is never quoted in full. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from callgate._schema.subschemas import pointer
from callgate._schema.text_formats import EXAMPLES
from callgate._schema.validation_errors import MAX_PROBLEMS, ValidationProblem
from callgate._schema.value_descriptions import clear_path, describe_value

__all__ = ["conversion_problems", "model_problems"]

_PLACE = re.compile(r"(?s)(.*?)(?: - at `(?:key in )?\$([^`]*)`)?")
_STEP = re.compile(r"\.([^.\[]+)")
_FORMATS = {
    "Invalid RFC3339 encoded time": "time",
    "Invalid RFC3339 encoded datetime": "date-time",
    "Invalid RFC3339 encoded date": "date",
    "Invalid ISO8601 duration": "duration",
    "Invalid UUID": "uuid",
    "Invalid decimal string": "decimal",
}
"""The format that a text has to have, by msgspec's error for a text that has another one."""
_PREFIXES = ("Input should be ", "Value error, ", "Assertion failed, ")
_MAX_TEXT = 300


def conversion_problems(name: str, value: object, error: ValueError) -> list[ValidationProblem]:
    """Return the problems that the error of a conversion reports for the argument `name`. There is at least one."""
    found = _of_pydantic([name], error)
    if found:
        return found
    match = _PLACE.fullmatch(str(error))
    text, place = match.groups() if match else (str(error), None)
    path, inner = [name], value
    for step, found_value in _walk(value, place or ""):
        path.append(step)
        inner = found_value
    return [_problem(list(path), text, inner)]


def model_problems(error: ValueError) -> list[ValidationProblem]:
    """Return the problems that pydantic's error reports for the arguments as a whole. There is at least one."""
    return _of_pydantic([], error) or [_problem([], str(error), None)]


def _of_pydantic(path: list[str | int], error: ValueError) -> list[ValidationProblem]:
    details = getattr(error, "errors", None)
    if not callable(details):
        return []
    return [_problem([*path, *one["loc"]], str(one["msg"]), one.get("input")) for one in details()[:MAX_PROBLEMS]]


def _walk(value: Any, place: str) -> Iterator[tuple[str, object]]:
    """Yield each step of the path that msgspec reports, with the value there.

    Stop at a list, because msgspec gives no index.
    """
    for step in _STEP.findall(place.partition("[")[0]):
        if not isinstance(value, dict) or step not in value:
            return
        value = value[step]
        yield step, value


def _problem(path: list[str | int], text: str, got: object) -> ValidationProblem:
    text = " ".join(text.split())[:_MAX_TEXT].rstrip(".")
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    if text in _FORMATS:
        text = f"text in the format {_FORMATS[text]}, such as {EXAMPLES[_FORMATS[text]]}"
    given = _describe_value(got)
    return ValidationProblem(
        path=pointer(path)[:400],
        message=f"{clear_path(path)}: expected {text}, got {given}" if _is_wanted(text) else f"{clear_path(path)}: {text}; got {given}",
        expected=text,
        got=given,
        keyword="type",
    )


def _is_wanted(text: str) -> bool:
    """Return whether the text describes the expected value. Otherwise, it describes the error."""
    return text.startswith(("text in ", "a ", "an ", "one of ", "greater ", "less ", "valid "))


def _describe_value(value: object) -> str:
    try:
        return describe_value(value)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__}"
