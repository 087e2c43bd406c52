"""Map file names to languages, and find the parsers: packages of the extra `symbols`, with queries in `queries/`.

Detects what is installed without importing it; only the child process that parses imports it.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from importlib.util import find_spec

from msgspec import Struct

__all__ = ["Language", "language_of", "parser_request"]


class Language(Struct, frozen=True):
    """A language with a tree-sitter grammar."""

    name: str
    title: str
    package: str
    function: str = "language"


_TYPESCRIPT = Language("typescript", "TypeScript", "tree_sitter_typescript", "language_typescript")
_TSX = Language("typescript", "TypeScript", "tree_sitter_typescript", "language_tsx")
_LANGUAGES = {
    Language("javascript", "JavaScript", "tree_sitter_javascript"): ".js .mjs .cjs .jsx",
    _TYPESCRIPT: ".ts .mts .cts",
    _TSX: ".tsx",
    Language("go", "Go", "tree_sitter_go"): ".go",
    Language("rust", "Rust", "tree_sitter_rust"): ".rs",
    Language("java", "Java", "tree_sitter_java"): ".java",
    Language("c", "C", "tree_sitter_c"): ".c",
    Language("cpp", "C++", "tree_sitter_cpp"): ".cc .cpp .cxx .h .hh .hpp .hxx",
    Language("ruby", "Ruby", "tree_sitter_ruby"): ".rb .rake",
    Language("php", "PHP", "tree_sitter_php", "language_php"): ".php",
    Language("c_sharp", "C#", "tree_sitter_c_sharp"): ".cs",
}
_BY_SUFFIX = {suffix: language for language, suffixes in _LANGUAGES.items() for suffix in suffixes.split()}


def language_of(path: str) -> Language | None:
    """Return the language of a file by its extension, or None."""
    return _BY_SUFFIX.get(os.path.splitext(path)[1].lower())


def parser_request(language: Language) -> dict[str, object] | None:
    """Return what the child process needs to parse the language, or None if its grammar is not installed."""
    folders = [_folder(package) for package in ("tree_sitter", language.package)]
    if None in folders:
        return None
    return {"folders": folders, "package": language.package, "function": language.function, "query": _query(language.name)}


def _folder(package: str) -> str | None:
    """Return the folder that the package is imported from; looked up on each call, because installed packages can change."""
    try:
        found = find_spec(package)
    except ValueError:
        return None
    return os.path.dirname(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


@cache
def _query(name: str) -> str:
    return (files("callgate.builtins") / "queries" / f"{name}.scm").read_text(encoding="utf-8")
