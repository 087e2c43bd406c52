"""List the classes, functions, methods and assigned names of a Python source file, with their lines and signatures.

Uses Python's own parser. If the whole file cannot be parsed, each top-level statement is parsed alone, so that a syntax
error hides only the symbols near it. The source of this module runs in a child process (`_symbol_search`), because a
parser's time and memory depend on its input and its warnings would affect the whole process. Therefore this module
imports only the standard library.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

__all__ = ["outline"]

_MOST = 20_000
"""The largest number of symbols of one file."""
_SIGNATURE_CHARS = 300
_BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError)
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.ExceptHandler)
_BEGINS = re.compile(r"[^\s#)\]}]")
_FOLLOWS = re.compile(r"(?:else|elif|except|finally)\b")

Symbol = tuple[str, str, str, int, str]


def outline(text: str) -> tuple[list[Symbol], bool]:
    """Return the symbols as `(name, kind, inside, line, signature)`, in order, and whether the whole text could be parsed."""
    try:
        return list(_symbols(ast.parse(text), 0))[:_MOST], True
    except _BROKEN:
        found: list[Symbol] = []
        for before, piece in _pieces(text):
            try:
                found += _symbols(ast.parse(piece), before)
            except _BROKEN:
                continue
        return found[:_MOST], False


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text of each top-level statement, with the number of lines before it."""
    lines = text.split("\n")
    start = 0
    for number, line in enumerate(lines):
        if number > start and _BEGINS.match(line) and not _FOLLOWS.match(line):
            yield start, "\n".join(lines[start:number])
            start = number
    yield start, "\n".join(lines[start:])


def _symbols(tree: ast.Module, before: int) -> Iterator[Symbol]:
    waiting: list[tuple[ast.AST, str, bool]] = [(node, "", False) for node in reversed(tree.body)]
    while waiting:
        node, inside, in_class = waiting.pop()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            kind = "class" if isinstance(node, ast.ClassDef) else "method" if in_class else "function"
            yield node.name, kind, inside, node.lineno + before, _signature(node)
            if isinstance(node, ast.ClassDef):
                within = f"{inside}.{node.name}" if inside else node.name
                waiting += [(child, within, True) for child in reversed(node.body)]
        elif isinstance(node, _BLOCKS):
            waiting += [(child, inside, in_class) for child in reversed(list(ast.iter_child_nodes(node)))]
        else:
            for name in _assignment_targets(node):
                yield name.id, "constant" if name.id.isupper() else "variable", inside, name.lineno + before, _declaration(node, name.id)


def _assignment_targets(node: ast.AST) -> list[ast.Name]:
    if isinstance(node, ast.AnnAssign):
        targets: list[ast.expr] = [node.target]
    elif isinstance(node, ast.Assign):
        targets = [one for target in node.targets for one in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])]
    else:
        alias = getattr(node, "name", None) if type(node).__name__ == "TypeAlias" else None
        targets = [alias] if isinstance(alias, ast.Name) else []
    return [target for target in targets if isinstance(target, ast.Name)]


def _declaration(node: ast.AST, name: str) -> str:
    """Return the declaration without its value, which may be long or secret."""
    return _shorten(f"{name}: {ast.unparse(node.annotation)}") if isinstance(node, ast.AnnAssign) else name


def _signature(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    try:
        if isinstance(node, ast.ClassDef):
            bases = ", ".join(ast.unparse(base) for base in [*node.bases, *node.keywords])
            return _shorten(f"class {node.name}({bases})" if bases else f"class {node.name}")
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        return _shorten(f"{word} {node.name}({ast.unparse(node.args)}){returns}")
    except RecursionError:
        return node.name


def _shorten(text: str) -> str:
    return text if len(text) <= _SIGNATURE_CHARS else text[:_SIGNATURE_CHARS] + "…"
