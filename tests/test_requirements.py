"""The list of requirements is complete, and each test that it names exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import OPEN, REQUIREMENTS, Requirement
from tests.waiting import COMMAND_S

ROOT = Path(__file__).parents[1]
COUNTS = {"A": 59, "B": 24, "C": 76, "D": 44, "E": 20}
NOT_HERE = re.compile(
    r"\b(ACCEPTANCE|BACKGROUND|DEPENDENCIES|DESIGN|STYLE)\b"  # documents from the planning of the project
    r"|\bseeds/|\bthe documents\b|\b[Oo]wner's (decision|list|table)\b"
    r"|\b[Dd]ecisions? R\d|\"\"\"R\d+[:.,]"  # numbered decisions in those documents; this repository's are in docs/explanation/decisions
)
"""Names of documents that are not in the repository, and phrases that refer to them."""
IDS = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]


def test_requirement_ids_are_complete_unique_and_in_order() -> None:
    assert [requirement.id for requirement in REQUIREMENTS] == IDS


def test_no_file_refers_to_a_document_outside_the_repository() -> None:
    """A reader must be able to open every document that a text refers to."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_S)
    named = listed.stdout.split("\0") if listed.returncode == 0 else [str(file.relative_to(ROOT)) for file in ROOT.glob("tests/**/*.py")]
    files = [ROOT / name for name in named if name.endswith((".py", ".md", ".toml")) and ROOT / name != Path(__file__)]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        if file.is_file()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if NOT_HERE.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.id)
def test_a_requirement_is_one_sentence_and_its_tests_exist(requirement: Requirement) -> None:
    assert re.fullmatch(r"[A-Z`].*\.", requirement.promise), "the promise must be a sentence"
    assert not re.search(r"\.\s+[A-Z]", requirement.promise), "the promise must be one sentence"
    assert len(set(requirement.tests)) == len(requirement.tests)
    for name in requirement.tests:
        path, _, function = name.partition("::")
        assert function in proofs_in(path), f"{name} does not exist"


@cache
def proofs_in(path: str) -> frozenset[str]:
    """Return the names of the test functions in a file, without importing it."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def test_each_requirement_line_names_a_test_or_is_open() -> None:
    """Each requirement is on one line, with its number in quotes and either a test or the word OPEN."""
    lines = (ROOT / "tests/requirements.py").read_text(encoding="utf-8").splitlines()
    said = {match[1]: line for line in lines if (match := re.match(r'    Requirement\("([A-E]\d+)", ', line))}
    assert list(said) == IDS
    for requirement in REQUIREMENTS:
        line = said[requirement.id]
        assert ("::test_" in line) is not line.endswith(", OPEN),")
        assert bool(requirement.tests) is ("::test_" in line)


def test_the_number_of_open_requirements_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    opened = Counter(requirement.id[0] for requirement in REQUIREMENTS if requirement.tests is OPEN)
    with capsys.disabled():
        sys.stdout.write(f"\n{opened.total()} of {len(REQUIREMENTS)} promises are open: {dict(sorted(opened.items()))}\n")
    assert opened.total() < len(REQUIREMENTS)
