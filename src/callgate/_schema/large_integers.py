"""Replace integers of an MCP server's schema that are outside the range of 64 bits, so that the schema can be compiled.

`_json/strict_parser.py` refuses arguments outside that range, so such an integer can only be a bound: a float bounds in the same way. Sizes
such as `maxLength` must be integers, so they are clamped to the range. Knows no tools.
"""

from __future__ import annotations

import sys
from typing import Any, Final

__all__ = ["with_readable_integers"]

_LEAST: Final = -(2**63)
_MOST: Final = 2**64 - 1
_SIZES: Final = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"}
)
_DEEPEST: Final = 100
"""What is nested deeper is not looked at: `schema_compiler.py` refuses such a schema."""


def with_readable_integers(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose integers are all in range: the same object if it has no other."""
    changed: dict[str, Any] = _readable(schema, 0)
    return changed


def _readable(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        pairs = {key: _size(item, depth + 1) if key in _SIZES else _readable(item, depth + 1) for key, item in value.items()}
        return value if all(pairs[key] is item for key, item in value.items()) else pairs
    if isinstance(value, list):
        items = [_readable(item, depth + 1) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value if not _is_too_large(value) else _as_float(value)


def _size(value: Any, depth: int) -> Any:
    return min(max(value, 0), _MOST) if _is_too_large(value) else _readable(value, depth)


def _is_too_large(value: object) -> bool:
    return type(value) is int and not _LEAST <= value <= _MOST


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -sys.float_info.max
