"""One class name means one thing in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "callgate"


def places_by_name() -> dict[str, list[str]]:
    """Return where each class of the package is defined, by class name."""
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    return places


def test_every_class_name_is_defined_once_in_the_package() -> None:
    wrong = [f"{name}: {', '.join(places)}" for name, places in places_by_name().items() if len(places) > 1]
    assert not wrong, "Rename all but one:\n" + "\n".join(wrong)
