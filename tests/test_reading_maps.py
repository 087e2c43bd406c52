"""The `__init__` of a large package names all of its modules, in its docstring or as a list, so that a reader finds where to begin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import callgate

PACKAGE = Path(callgate.__file__).parent
LARGE = 15
"""The number of modules above which a package is too large to be understood from its file names."""


def modules_of(folder: Path) -> set[str]:
    modules = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    return modules | {child.parent.name for child in folder.glob("*/__init__.py")}


LARGE_PACKAGES = sorted(folder for folder in PACKAGE.rglob("*") if (folder / "__init__.py").exists() and len(modules_of(folder)) > LARGE)


@pytest.mark.parametrize("folder", LARGE_PACKAGES, ids=lambda folder: folder.relative_to(PACKAGE).as_posix())
def test_the_init_of_a_large_package_names_all_of_its_modules(folder: Path) -> None:
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    unnamed = sorted(name for name in modules_of(folder) if not re.search(rf"(?<!\w){name}(?!\w)", text))
    assert unnamed == []


def test_there_are_large_packages() -> None:
    assert "_pipeline" in {folder.name for folder in LARGE_PACKAGES}
