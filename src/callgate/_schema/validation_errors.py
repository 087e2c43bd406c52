"""Describe validation errors so that a model can correct them: place, expected value, actual value, valid value.

Uses the typed errors of the validator, never their texts, because a text may repeat a whole value. Every sentence has a
maximum length. Pure.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callgate._json.malformed_text import clip
from callgate._schema.subschemas import Schema, mapping, pointer
from callgate._schema.text_formats import EXAMPLES
from callgate._schema.value_descriptions import (
    SHOWN,
    TYPES,
    clear_path,
    describe_value,
    describe_wanted,
    forbidden,
    nearest,
    nearest_multiple,
    one_of,
    without_repeats,
)

__all__ = ["MAX_PROBLEMS", "ValidationProblem", "describe_errors", "too_expensive", "without_new_number"]

MAX_PROBLEMS = 20
_NAMES_VALUES = frozenset({"enum", "const", "required"})
"""The keywords that suggest only values that the schema names."""
_SIZES: dict[str, tuple[str, str, Callable[[Any], int]]] = {
    "MinLength": ("text of at least {} characters", "{} characters", len),
    "MaxLength": ("text of at most {} characters", "{} characters", len),
    "MinItems": ("a list of at least {} items", "{} items", len),
    "MaxItems": ("a list of at most {} items", "{} items", len),
    "MinProperties": ("an object with at least {} keys", "{} keys", len),
    "MaxProperties": ("an object with at most {} keys", "{} keys", len),
}


class ValidationProblem(Struct, frozen=True, kw_only=True):
    """One problem of a value."""

    path: str
    """The place as a JSON pointer; empty for the whole value."""
    message: str
    """One sentence for the model."""
    expected: str = ""
    got: str = ""
    passes: object = None
    """A value that would be valid at this place; None if none is known."""
    keyword: str = ""
    """The violated schema keyword, or the limit that was reached.

    `budget`: validation would take too long. `backtracking`: a pattern took too long.
    """


def without_new_number(problem: ValidationProblem) -> ValidationProblem:
    """Return the problem without a number that would be valid, unless the schema names that number.

    For tools with effects: a model that reads that 1 would pass may pay 1, which nobody has asked for.
    """
    value = problem.passes
    if not isinstance(value, (int, float)) or isinstance(value, bool) or problem.keyword in _NAMES_VALUES:
        return problem
    return replace(problem, message=problem.message.removesuffix(_suggestion(value)), passes=None)


def too_expensive() -> ValidationProblem:
    return ValidationProblem(
        path="",
        message="the arguments are too large or too deep to check against this tool's schema. Send less, or shorter text.",
        expected="what can be checked in bounded time",
        keyword="budget",
    )


def describe_errors(errors: Iterable[Any], root: Schema) -> list[ValidationProblem]:
    """Return the problems for the validator's `errors`, without duplicates.

    An error that is None stands for one that is too expensive to explain.
    """
    found: dict[tuple[str, str, str], ValidationProblem] = {}
    for error in errors:
        for problem in _unspecific() if error is None else _problems(error, root):
            found.setdefault((problem.path, problem.keyword, problem.expected), problem)
            if len(found) >= MAX_PROBLEMS:
                return list(found.values())
    return list(found.values())


def _unspecific() -> list[ValidationProblem]:
    return [ValidationProblem(path="", message="the arguments do not match the tool's schema.", expected="what the tool's schema says")]


def _problems(error: Any, root: Schema) -> list[ValidationProblem]:
    kind = type(error.kind).__name__
    if kind == "Required":
        return [_missing_problem(error, root)]
    if kind in ("AdditionalProperties", "UnevaluatedProperties"):
        return [_unknown_key_problem(error, name, root) for name in error.kind.unexpected[:MAX_PROBLEMS]]
    if kind == "PropertyNames":
        inner = error.kind.error
        return [_problem(error, f"keys that match: {_expectation(inner, root)[0]}", clip(str(inner.instance), SHOWN), None)]
    if kind in ("AnyOf", "OneOfNotValid"):
        return _alternatives(error, root)
    expected, passes = _expectation(error, root)
    return [_problem(error, expected, _got(error, kind), passes)]


def _problem(error: Any, expected: str, got: str, passes: object, *, below: tuple[str, ...] = ()) -> ValidationProblem:
    path = [*error.instance_path, *below]
    ending = "" if passes is None else _suggestion(passes)
    return ValidationProblem(
        path=pointer(path)[:400],
        message=f"{clear_path(path)}: expected {expected}, got {got}{ending}",
        expected=expected,
        got=got,
        passes=passes,
        keyword="backtracking" if type(error.kind).__name__ == "BacktrackLimitExceeded" else error.kind.name,
    )


def _suggestion(value: object) -> str:
    return f"; {describe_value(value)} would pass"


def _missing_problem(error: Any, root: Schema) -> ValidationProblem:
    name = error.kind.property
    schema = _schema_at(error, root)
    inner = mapping(schema, "properties").get(name) or mapping(root, "properties").get(name)
    inner = inner if isinstance(inner, dict) else {}
    passes = next((inner[word] for word in ("default", "const") if word in inner), None)
    if passes is None and isinstance(inner.get("enum"), list) and inner["enum"]:
        passes = inner["enum"][0]
    condition = next((word for word in error.evaluation_path if word in ("then", "else", "dependentRequired", "dependencies")), None)
    because = ", which the other arguments call for" if condition else ""
    return _problem(error, f"{describe_wanted(inner)}{because}", "nothing: it is missing", passes, below=(name[:200],))


def _unknown_key_problem(error: Any, name: str, root: Schema) -> ValidationProblem:
    known = list(_schema_at(error, root).get("properties") or {})
    missing = [key for key in known if isinstance(error.instance, dict) and key not in error.instance]
    near = difflib.get_close_matches(name[:100], missing[:200], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(sorted(known)[:20])}" if known else ""
    path = [*error.instance_path, name]
    return ValidationProblem(
        path=pointer(path)[:400],
        message=f"{clear_path(path)}: this key is unknown here{hint}"[:600],
        expected="no such key",
        got=clip(name),
        keyword=error.kind.name,
    )


def _schema_at(error: Any, root: Schema) -> Schema:
    """Return the schema that contains the violated keyword; empty if the path leads through a reference."""
    found: Any = root
    for step in error.schema_path[:-1]:
        found = found.get(step) if isinstance(found, dict) else found[step] if isinstance(found, list) and isinstance(step, int) else None
    return found if isinstance(found, dict) else {}


def _got(error: Any, kind: str) -> str:
    if kind in _SIZES:
        return _SIZES[kind][1].format(_SIZES[kind][2](error.instance))
    return describe_value(error.instance)


def _expectation(error: Any, root: Schema) -> tuple[str, object]:
    """Return what the error's keyword expects, and a value that would be valid, or None."""
    kind, name = error.kind, type(error.kind).__name__
    if name in _SIZES:
        return _SIZES[name][0].format(kind.limit), None
    match name:
        case "Required":
            return f"an object with {clip(kind.property)}", None
        case "AdditionalProperties" | "UnevaluatedProperties":
            return f"an object without {', '.join(clip(key, 30) for key in kind.unexpected[:5])}", None
        case "AnyOf" | "OneOfNotValid":
            return "one of several alternatives", None
        case "Type":
            wanted_types = " or ".join(TYPES.get(item, item) for item in kind.types)
            example = EXAMPLES.get(str(_schema_at(error, root).get("format"))) if "string" in kind.types else None
            return wanted_types + (f", such as {describe_value(example)}" if example else ""), None
        case "Enum":
            return one_of(kind.options), nearest(error.instance, kind.options)
        case "Constant":
            return describe_value(kind.expected_value), kind.expected_value
        case "Maximum" | "Minimum" | "ExclusiveMaximum" | "ExclusiveMinimum":
            return _range(error, name, root)
        case "MultipleOf":
            return f"a multiple of {kind.multiple_of}", nearest_multiple(error.instance, kind.multiple_of)
        case "Pattern":
            return f"text that matches {clip(kind.pattern, 200)}", None
        case "BacktrackLimitExceeded":
            return "text that its pattern can be matched against in bounded time; send shorter text", None
        case "Format":
            example = EXAMPLES.get(kind.format)
            return f"text in the format {kind.format}{f', such as {example}' if example else ''}", None
        case "Not":
            return forbidden(kind.schema), None
        case "OneOfMultipleValid":
            return _exclusive(error, root), None
        case "FalseSchema":
            return "nothing in this place", None
        case "UniqueItems":
            return "a list without repeated items", without_repeats(error.instance)
        case "Contains":
            return "a list that contains the item the schema asks for", None
        case "AdditionalItems":
            return f"a list of at most {kind.limit} items", None
        case _:
            return f"what the schema's {kind.name} says", None


def _range(error: Any, name: str, root: Schema) -> tuple[str, object]:
    limit = error.kind.limit
    whole = "an integer" in describe_wanted(_schema_at(error, root))
    word = {"Maximum": "at most", "Minimum": "at least", "ExclusiveMaximum": "less than", "ExclusiveMinimum": "more than"}[name]
    passes: object = limit
    if name.startswith("Exclusive"):
        step = -1 if name == "ExclusiveMaximum" else 1
        passes = (math.ceil(limit) - 1 if step < 0 else math.floor(limit) + 1) if whole else None
    elif whole and isinstance(limit, float):
        passes = math.floor(limit) if name == "Maximum" else math.ceil(limit)
    return f"{'an integer' if whole else 'a number'} of {word} {limit}", passes


def _exclusive(error: Any, root: Schema) -> str:
    branches = _schema_at(error, root).get("oneOf")
    asked = [branch.get("required") if isinstance(branch, dict) else None for branch in branches or []]
    if isinstance(error.instance, dict) and asked and all(asked):
        given = [" with ".join(names) for names in asked if names and all(name in error.instance for name in names)]
        if len(given) > 1:
            return f"only one of: {', '.join(given[:8])}; not together"
    return "a value that matches exactly one of the alternatives; it matches several"


def _alternatives(error: Any, root: Schema) -> list[ValidationProblem]:
    """Explain why no alternative matched: describe the closest one, or name all in one line."""
    branches = [branch for branch in error.kind.context if branch]
    here = error.instance_path
    if not branches:
        return [_problem(error, "one of the alternatives of the schema", describe_value(error.instance), None)]
    branches, tags = _choose_by_tag(branches, here)
    if tags:
        expected = ", or ".join(dict.fromkeys(_expectation(tag, root)[0] for tag in tags))
        return [_problem(tags[0], expected[:400], describe_value(tags[0].instance), None)]
    kinds = [[type(inner.kind).__name__ for inner in branch if inner.instance_path == here] for branch in branches]
    if len(branches) > 1 and all("Required" in names for names in kinds):
        missing = [" with ".join(i.kind.property for i in branch if type(i.kind).__name__ == "Required") for branch in branches]
        return [_problem(error, f"one of these: {', '.join(missing[:8])}", describe_value(error.instance), None)]
    near = [branch for branch, names in zip(branches, kinds, strict=True) if "Type" not in names and "Constant" not in names]
    if len(near) == 1:
        return [problem for inner in near[0][:MAX_PROBLEMS] for problem in _problems(inner, root)]
    found = [(_expectation(branch[0], root), branch[0].instance_path == here) for branch in branches[:8]]
    expected = ", or ".join(dict.fromkeys(text for (text, _), _ in found))
    passes = next((value for (_, value), is_here in found if is_here and value is not None), None)
    return [_problem(error, expected[:400], describe_value(error.instance), passes)]


def _choose_by_tag(branches: list[Any], here: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the alternatives whose tag matches, or else all of them; and the errors of the tag if it is the one that is wrong in all.

    Alternatives of another type than the value's have no tag.
    """
    fitting = [branch for branch in branches if not any(_is_other_type(inner, here) for inner in branch)]
    tags = [next((inner for inner in branch if _is_tag(inner, here)), None) for branch in fitting]
    if len(fitting) < 2 or not any(tags):
        return branches, []
    matching = [branch for branch, wrong in zip(fitting, tags, strict=True) if wrong is None]
    if matching:
        return matching, []
    return branches, tags if len({tuple(wrong.instance_path) for wrong in tags if wrong is not None}) == 1 else []


def _is_other_type(error: Any, here: list[Any]) -> bool:
    """Whether an error of an alternative is that the whole value is of another type."""
    return type(error.kind).__name__ == "Type" and error.instance_path == here


def _is_tag(error: Any, here: list[Any]) -> bool:
    """Whether an error of an alternative is that of a property with one fixed value, which tells the alternatives apart."""
    name = type(error.kind).__name__
    is_fixed = name == "Constant" or (name == "Enum" and len(error.kind.options) == 1)
    return is_fixed and error.instance_path[:-1] == here and error.instance_path != here
