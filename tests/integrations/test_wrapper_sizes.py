"""The size of each wrapper: a framework's module with what a user gives it, without what all wrappers share."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

INTEGRATIONS = Path(__file__).parents[2] / "src" / "callgate" / "integrations"
NO_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def lines_of_code(text: str) -> int:
    """Return the number of lines with code. Imports, docstrings, comments and blank lines are not counted."""
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in NO_CODE]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and is_text(node.value)):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


@pytest.mark.parametrize("name", ["agent_framework", "langchain", "langgraph", "openai_agents", "pydantic_ai"])
def test_a_wrapper_has_fewer_than_100_lines_of_code(name: str) -> None:
    """So that a developer can read what happens to the calls of their framework before they use it."""
    assert lines_of_code((INTEGRATIONS / f"{name}.py").read_text(encoding="utf-8")) < 100


def test_only_lines_with_code_are_counted() -> None:
    assert lines_of_code('"""A module."""\n\nfrom os import (\n    path,\n)\n\n# why\nvalue = [\n    1,\n]\n"""A value."""\n') == 3
