"""Regular expressions in schemas: choose the engine that runs them, and estimate their cost per character.

The engine with linear run time runs every pattern that it can compile. Look-around and back-references need the
backtracking engine, which stops after a fixed number of steps. A pattern that neither engine can compile is refused
when its tool is registered, not when the tool is called.
"""

from __future__ import annotations

import re
from typing import Any

from callgate._schema.subschemas import Schema, Schemas

__all__ = ["BACKTRACK_LIMIT", "MAX_PATTERN", "cost", "engine_of", "patterns"]

MAX_PATTERN = 2_000
"""The maximum number of characters of one pattern."""
BACKTRACK_LIMIT = 1_000
_SIZE_LIMIT = 2_000_000
_FANCY = 150  # measured: up to 1.5 µs a character at this backtrack limit, against 10 ns for one state of the linear engine
_COUNTED = re.compile(r"\{(\d+)(,?)(\d*)\}")
_MOST = 1_000_000


def patterns(schema: Schema) -> list[str]:
    """Return the schema's `pattern` and the keys of its `patternProperties`, without those of its subschemas."""
    found = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
    named = schema.get("patternProperties")
    return found + list(named) if isinstance(named, dict) else found


def linear_engine() -> Any:
    """Return the options of the engine whose run time is linear in the text's length."""
    import jsonschema_rs

    return jsonschema_rs.RegexOptions(size_limit=_SIZE_LIMIT)


def engine_of(schemas: Schemas) -> tuple[Any, str | None]:
    """Return the options of the engine that can run all patterns of a document, and None.

    If no engine can run one of the patterns, return this pattern instead of None.
    """
    import jsonschema_rs

    linear = linear_engine()
    fancy: Any = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT, size_limit=_SIZE_LIMIT)
    chosen = linear
    for text in {text for _, schema in schemas for text in patterns(schema)}:
        if _compiles(text, linear):
            continue
        if not _compiles(text, fancy):
            return chosen, text
        chosen = fancy
    return chosen, None


def _compiles(pattern: str, options: Any) -> bool:
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options, offline=True)
    except ValueError:
        return False
    return True


def cost(pattern: str) -> int:
    """Return the maximum cost of one character of text, in units of about 10 ns.

    This is the number of the pattern's states with counted repeats expanded, times a constant if the pattern needs the
    backtracking engine.
    """
    backtracks = re.search(r"\(\?(?:[=!]|<[=!])|\\[1-9]|\\k<", pattern) is not None
    return min(_MOST, _states(pattern) * (_FANCY if backtracks else 1))


def _states(pattern: str) -> int:
    groups = [0]
    last = 0  # size of the atom that a quantifier would repeat
    index = 0
    while index < len(pattern):
        mark = pattern[index]
        counted = _COUNTED.match(pattern, index) if mark == "{" else None
        if counted:
            times = int((counted[3] or counted[1])[:7])
            groups[-1] = min(_MOST, groups[-1] + last * max(0, times - 1))
            index = counted.end()
            continue
        if mark == "(":
            groups.append(0)
        elif mark == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif mark not in "?*+|^$":
            index = _atom_end(pattern, index)
            last = 1
            groups[-1] += 1
        index += 1
    return min(_MOST, max(1, sum(groups)))


def _atom_end(pattern: str, index: int) -> int:
    """Return the last index of the atom that begins at `index`: an escape, a class, or one character."""
    if pattern[index] == "\\":
        return index + 1
    if pattern[index] == "[":
        end = index + 1
        while end < len(pattern) and (pattern[end] != "]" or end == index + 1):
            end += 2 if pattern[end] == "\\" else 1
        return end
    return index
