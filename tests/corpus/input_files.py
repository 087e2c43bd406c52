"""Read the recorded and hostile inputs, which are not part of the repository."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["build", "found_rows", "most_ms", "rows", "same"]

FOLDER = Path(__file__).parents[2].parent / "shared" / "data"


def rows(name: str, **wanted: str) -> list[Any]:
    """Return the rows of a file with these fields as pytest parameters; one skipped parameter if the folder is missing."""
    path = FOLDER / name
    if not path.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"the input folder is absent ({name})"))]
    found = [row for row in _read(path) if all(row.get(key) == value for key, value in wanted.items())]
    return [pytest.param(row, id=str(row.get("id", row.get("name", index)))) for index, row in enumerate(found)]


def found_rows(name: str) -> list[dict[str, Any]]:
    """Return all rows of a file; skip the test if the folder is missing."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the input folder is absent ({name})")
    return list(_read(path))


def _read(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def most_ms(row: dict[str, Any]) -> float:
    """Return the maximum time of a row: exceeded by a hang or unbounded growth, but not on a slow and busy machine."""
    return 20 * float(row["expect"].get("max_ms", 5_000))


def build(node: Any) -> str | bytes:
    """Return the text or bytes that a node of the inputs describes."""
    if isinstance(node, str):
        return node
    ((kind, value),) = node.items()
    match kind:
        case "rep":
            return build(value[0]) * int(value[1])
        case "cp":
            return "".join(map(chr, value))
        case "b64":
            return base64.b64decode(value)
        case "range":
            return str(value[2]).join(str(value[0]).replace("%d", str(index)) for index in range(value[1]))
        case "json":
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case "cat":
            return _joined([build(part) for part in value])
        case _:
            raise ValueError(kind)


def _joined(parts: list[str | bytes]) -> str | bytes:
    if any(isinstance(part, bytes) for part in parts):
        return b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    return "".join(part for part in parts if isinstance(part, str))


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: 1 equals 1.0, but true does not equal 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other
    return type(one) is type(other) and bool(one == other)
