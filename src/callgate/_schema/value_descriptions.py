"""Describe values and schemas in a few words, for error messages to models. Pure."""

from __future__ import annotations

import difflib
import json
from typing import Any

from callgate._json.malformed_text import clip
from callgate._schema.subschemas import Schema

__all__ = [
    "SHOWN",
    "TYPES",
    "clear_path",
    "describe_value",
    "describe_wanted",
    "forbidden",
    "nearest",
    "nearest_multiple",
    "one_of",
    "without_repeats",
]

SHOWN = 80
TYPES = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def clear_path(path: list[str | int]) -> str:
    """Return a path in readable form, such as `filters[0].limit`."""
    text = ""
    for step in path[:12]:
        text += f"[{step}]" if isinstance(step, int) else f".{step[:60]}" if text else step[:60]
    return (text or "arguments") + ("…" if len(path) > 12 else "")


def describe_wanted(schema: Schema) -> str:
    """Describe in a few words what values a schema accepts."""
    if isinstance(schema.get("enum"), list):
        return one_of(schema["enum"])
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    return " or ".join(TYPES.get(kind, str(kind)) for kind in kinds) or "a value"


def describe_value(value: object) -> str:
    """Describe a value in a few words: a scalar as JSON, a container by its size."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= SHOWN else value[:SHOWN] + "…", ensure_ascii=not value.isprintable())
    if isinstance(value, list):
        text = json.dumps(value) if len(value) <= 5 and all(not isinstance(item, (list, dict, str)) for item in value) else ""
        return text if 0 < len(text) <= SHOWN else f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {', '.join(clip(key, 30) for key in list(value)[:5])}" if value else "an empty object"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**40:
        return "a very large number"
    return json.dumps(value)


def one_of(options: list[Any]) -> str:
    listed = ", ".join(describe_value(option) for option in options[:12])
    return f"one of {listed}" + (f" and {len(options) - 12} more" if len(options) > 12 else "")


def nearest(value: object, options: list[Any]) -> object:
    if isinstance(value, str):
        texts = [option for option in options[:500] if isinstance(option, str)]
        same = [option for option in texts if option.strip().casefold() == value.strip().casefold()]
        near = same or difflib.get_close_matches(value[:100], texts, n=1)
        return near[0] if near else texts[0] if texts else next(iter(options), None)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        numbers = [option for option in options if isinstance(option, (int, float)) and not isinstance(option, bool)]
        return min(numbers, key=lambda option: abs(option - value), default=next(iter(options), None))
    return next(iter(options), None)


def nearest_multiple(value: Any, factor: Any) -> object:
    try:
        whole = round(value / factor) * factor
    except (ArithmeticError, TypeError, ValueError):
        return None
    return whole if isinstance(value, int) and isinstance(factor, int) else None


def without_repeats(values: Any) -> object:
    kept: list[object] = []
    for value in values[:50]:
        if not any(type(value) is type(other) and value == other for other in kept):
            kept.append(value)
    return kept if len(values) <= 50 and len(json.dumps(kept)) <= 200 else None


def forbidden(schema: Any) -> str:
    names = schema.get("required") if isinstance(schema, dict) else None
    if isinstance(names, list) and names and set(schema) <= {"required", "type"}:
        together = " and ".join(str(name) for name in names[:8])
        return f"not {together} together" if len(names) > 1 else f"no {together}"
    return f"no value of the kind that is ruled out here ({clip(json.dumps(schema), 120)})"
