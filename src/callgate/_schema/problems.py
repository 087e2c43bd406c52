"""Say what is wrong with a value so that a model can put it right: where, what was expected, what came, what would pass.

Reads the validator's typed errors, never their texts: those may repeat a whole value. Every sentence is bounded. Pure.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from callgate._json.text import clip
from callgate._schema.walk import Schema, pointer

__all__ = ["Problem", "clear_path", "listed", "too_dear"]

MAX_PROBLEMS = 20
_SHOWN = 80
_TYPES = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_SIZES: dict[str, tuple[str, str, Callable[[Any], int]]] = {
    "MinLength": ("text of at least {} characters", "{} characters", len),
    "MaxLength": ("text of at most {} characters", "{} characters", len),
    "MinItems": ("a list of at least {} items", "{} items", len),
    "MaxItems": ("a list of at most {} items", "{} items", len),
    "MinProperties": ("an object with at least {} keys", "{} keys", len),
    "MaxProperties": ("an object with at most {} keys", "{} keys", len),
}


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a value."""

    path: str
    """Where, as a JSON pointer; empty for the value as a whole."""
    message: str
    """One sentence for the model."""
    expected: str = ""
    got: str = ""
    passes: object = None
    """A value that would pass in this place, where one can be told."""
    keyword: str = ""
    """The schema keyword that is broken; `budget` where checking would take too long, `backtracking` where a pattern took too long."""


def too_dear() -> Problem:
    return Problem(
        path="",
        message="the arguments are too large or too deep to check against this tool's schema. Send less, or shorter text.",
        expected="arguments that can be checked in bounded time",
        keyword="budget",
    )


def listed(errors: Iterable[Any], root: Schema) -> list[Problem]:
    """The problems that `errors` of the validator stand for, without repetitions; None stands for an error too dear to look at."""
    found: dict[tuple[str, str, str], Problem] = {}
    for error in errors:
        for problem in _unspecific() if error is None else _problems(error, root):
            found.setdefault((problem.path, problem.keyword, problem.expected), problem)
            if len(found) >= MAX_PROBLEMS:
                return list(found.values())
    return list(found.values())


def _unspecific() -> list[Problem]:
    return [Problem(path="", message="the arguments do not match the tool's schema.", expected="what the tool's schema says")]


def _problems(error: Any, root: Schema) -> list[Problem]:
    kind = type(error.kind).__name__
    if kind == "Required":
        return [_required(error, root)]
    if kind in ("AdditionalProperties", "UnevaluatedProperties"):
        return [_unknown(error, name, root) for name in error.kind.unexpected[:MAX_PROBLEMS]]
    if kind == "PropertyNames":
        inner = error.kind.error
        return [_problem(error, f"keys that match: {_expectation(inner, root)[0]}", clip(str(inner.instance), _SHOWN), None)]
    if kind in ("AnyOf", "OneOfNotValid"):
        return _alternatives(error, root)
    expected, passes = _expectation(error, root)
    return [_problem(error, expected, _got(error, kind), passes)]


def _problem(error: Any, expected: str, got: str, passes: object, *, below: tuple[str, ...] = ()) -> Problem:
    path = [*error.instance_path, *below]
    ending = "" if passes is None else f"; {_shown(passes)} would pass"
    return Problem(
        path=pointer(path)[:400],
        message=f"{clear_path(path)}: expected {expected}, got {got}{ending}",
        expected=expected,
        got=got,
        passes=passes,
        keyword="backtracking" if type(error.kind).__name__ == "BacktrackLimitExceeded" else error.kind.name,
    )


def clear_path(path: list[str | int]) -> str:
    """A path as a person writes it: `filters[0].limit`."""
    text = ""
    for step in path[:12]:
        text += f"[{step}]" if isinstance(step, int) else f".{step[:60]}" if text else step[:60]
    return (text or "arguments") + ("…" if len(path) > 12 else "")


def _required(error: Any, root: Schema) -> Problem:
    name = error.kind.property
    schema = _schema_at(error, root)
    inner = (schema.get("properties") or {}).get(name) or (root.get("properties") or {}).get(name)
    inner = inner if isinstance(inner, dict) else {}
    passes = next((inner[word] for word in ("default", "const") if word in inner), None)
    if passes is None and isinstance(inner.get("enum"), list) and inner["enum"]:
        passes = inner["enum"][0]
    condition = next((word for word in error.evaluation_path if word in ("then", "else", "dependentRequired", "dependencies")), None)
    because = ", which the other arguments call for" if condition else ""
    return _problem(error, f"{_wanted(inner)}{because}", "nothing: it is missing", passes, below=(name[:200],))


def _wanted(schema: Schema) -> str:
    """What a schema asks for, in a few words."""
    if isinstance(schema.get("enum"), list):
        return _one_of(schema["enum"])
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    return " or ".join(_TYPES.get(kind, str(kind)) for kind in kinds) or "a value"


def _unknown(error: Any, name: str, root: Schema) -> Problem:
    known = [
        key for key in (_schema_at(error, root).get("properties") or {}) if isinstance(error.instance, dict) and key not in error.instance
    ]
    near = difflib.get_close_matches(name[:100], known[:200], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(sorted(known)[:20])}" if known else ""
    path = [*error.instance_path, name]
    return Problem(
        path=pointer(path)[:400],
        message=f"{clear_path(path)}: this key is unknown here{hint}"[:600],
        expected="no such key",
        got=clip(name),
        keyword=error.kind.name,
    )


def _schema_at(error: Any, root: Schema) -> Schema:
    """The schema that holds the broken keyword; empty where the path leads through a reference."""
    found: Any = root
    for step in error.schema_path[:-1]:
        found = found.get(step) if isinstance(found, dict) else found[step] if isinstance(found, list) and isinstance(step, int) else None
    return found if isinstance(found, dict) else {}


def _got(error: Any, kind: str) -> str:
    if kind in _SIZES:
        return _SIZES[kind][1].format(_SIZES[kind][2](error.instance))
    return _shown(error.instance)


def _shown(value: object) -> str:
    """A value in few words: a scalar as JSON, a container by its size."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= _SHOWN else value[:_SHOWN] + "…", ensure_ascii=not value.isprintable())
    if isinstance(value, list):
        text = json.dumps(value) if len(value) <= 5 and all(not isinstance(item, (list, dict, str)) for item in value) else ""
        return text if 0 < len(text) <= _SHOWN else f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {', '.join(clip(key, 30) for key in list(value)[:5])}" if value else "an empty object"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**40:
        return "a very large number"
    return json.dumps(value)


def _one_of(options: list[Any]) -> str:
    shown = ", ".join(_shown(option) for option in options[:12])
    return f"one of {shown}" + (f" and {len(options) - 12} more" if len(options) > 12 else "")


def _expectation(error: Any, root: Schema) -> tuple[str, object]:
    """What one error's keyword expects, and a value that would pass."""
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
            return " or ".join(_TYPES.get(item, item) for item in kind.types), None
        case "Enum":
            return _one_of(kind.options), _nearest(error.instance, kind.options)
        case "Constant":
            return _shown(kind.expected_value), kind.expected_value
        case "Maximum" | "Minimum" | "ExclusiveMaximum" | "ExclusiveMinimum":
            return _range(error, name, root)
        case "MultipleOf":
            return f"a multiple of {kind.multiple_of}", _nearest_multiple(error.instance, kind.multiple_of)
        case "Pattern":
            return f"text that matches {clip(kind.pattern, 200)}", None
        case "BacktrackLimitExceeded":
            return "text that its pattern can be matched against in bounded time; send shorter text", None
        case "Format":
            return f"text in the format {kind.format}", None
        case "Not":
            return _forbidden(kind.schema), None
        case "OneOfMultipleValid":
            return _exclusive(error, root), None
        case "FalseSchema":
            return "nothing in this place", None
        case "UniqueItems":
            return "a list without repeated items", _without_repeats(error.instance)
        case "Contains":
            return "a list that contains the item the schema asks for", None
        case "AdditionalItems":
            return f"a list of at most {kind.limit} items", None
        case _:
            return f"what the schema's {kind.name} says", None


def _range(error: Any, name: str, root: Schema) -> tuple[str, object]:
    limit = error.kind.limit
    whole = "an integer" in _wanted(_schema_at(error, root))
    word = {"Maximum": "at most", "Minimum": "at least", "ExclusiveMaximum": "less than", "ExclusiveMinimum": "more than"}[name]
    passes: object = limit
    if name.startswith("Exclusive"):
        step = -1 if name == "ExclusiveMaximum" else 1
        passes = (math.ceil(limit) - 1 if step < 0 else math.floor(limit) + 1) if whole else None
    elif whole and isinstance(limit, float):
        passes = math.floor(limit) if name == "Maximum" else math.ceil(limit)
    return f"{'an integer' if whole else 'a number'} of {word} {limit}", passes


def _nearest(value: object, options: list[Any]) -> object:
    if isinstance(value, str):
        texts = [option for option in options[:500] if isinstance(option, str)]
        same = [option for option in texts if option.strip().casefold() == value.strip().casefold()]
        near = same or difflib.get_close_matches(value[:100], texts, n=1)
        return near[0] if near else texts[0] if texts else next(iter(options), None)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        numbers = [option for option in options if isinstance(option, (int, float)) and not isinstance(option, bool)]
        return min(numbers, key=lambda option: abs(option - value), default=next(iter(options), None))
    return next(iter(options), None)


def _nearest_multiple(value: Any, factor: Any) -> object:
    try:
        whole = round(value / factor) * factor
    except (ArithmeticError, TypeError, ValueError):
        return None
    return whole if isinstance(value, int) and isinstance(factor, int) else None


def _without_repeats(values: Any) -> object:
    kept: list[object] = []
    for value in values[:50]:
        if not any(type(value) is type(other) and value == other for other in kept):
            kept.append(value)
    return kept if len(values) <= 50 and len(json.dumps(kept)) <= 200 else None


def _forbidden(schema: Any) -> str:
    names = schema.get("required") if isinstance(schema, dict) else None
    if isinstance(names, list) and names and set(schema) <= {"required", "type"}:
        together = " and ".join(str(name) for name in names[:8])
        return f"not {together} together" if len(names) > 1 else f"no {together}"
    return f"no value of the kind that is ruled out here ({clip(json.dumps(schema), 120)})"


def _exclusive(error: Any, root: Schema) -> str:
    branches = _schema_at(error, root).get("oneOf")
    branches = branches if isinstance(branches, list) else []
    names = [" with ".join(branch["required"]) for branch in branches if isinstance(branch, dict) and branch.get("required")]
    given = [name for branch, name in zip(branches, names, strict=False) if all(key in error.instance for key in branch["required"])]
    if len(names) == len(branches) and len(given) > 1:
        return f"only one of: {', '.join(given[:8])}; not together"
    return "a value that matches exactly one of the alternatives; it matches several"


def _alternatives(error: Any, root: Schema) -> list[Problem]:
    """None of several alternatives matched: the one that came nearest is explained, or all are named in one line."""
    branches = [branch for branch in error.kind.context if branch]
    here = error.instance_path
    if not branches:
        return [_problem(error, "one of the alternatives of the schema", _shown(error.instance), None)]
    kinds = [[type(inner.kind).__name__ for inner in branch if inner.instance_path == here] for branch in branches]
    if all("Required" in names for names in kinds):
        missing = [" with ".join(i.kind.property for i in branch if type(i.kind).__name__ == "Required") for branch in branches]
        return [_problem(error, f"one of these: {', '.join(missing[:8])}", _shown(error.instance), None)]
    near = [branch for branch, names in zip(branches, kinds, strict=True) if "Type" not in names and "Constant" not in names]
    if len(near) == 1:
        return [problem for inner in near[0][:MAX_PROBLEMS] for problem in _problems(inner, root)]
    found = [_expectation(branch[0], root) for branch in branches[:8]]
    expected = ", or ".join(dict.fromkeys(text for text, _ in found))
    return [_problem(error, expected[:400], _shown(error.instance), next((p for _, p in found if p is not None), None))]
