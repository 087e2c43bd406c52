"""List the symbols that a source file in a language other than Python defines.

Each language has a tree-sitter query (`queries/`). Each pattern of a query matches one kind of definition. Tree-sitter
continues after a syntax error. The source of this module runs in a child process (`_symbol_search`), for the same
reasons as `_python_symbols`. Only the child process imports tree-sitter, from the folders that the request names.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["tagged"]

_MOST = 20_000
"""The largest number of symbols of one file."""
_MOST_BYTES = 2_097_152
"""How many bytes of a file are parsed, from its beginning.

Parsing dense code takes a hundred times its size in memory.
"""
_SIGNATURE_CHARS = 300
_HOLDERS = frozenset({"class", "interface", "struct", "enum", "trait", "module", "within"})
_HIDES = frozenset({"function", "method", "local"})
_NO_METHODS = frozenset({"", "module"})
_WORDS = re.compile(rb"[\sa-z]*")
_GENERIC = re.compile(r"<[^<>]*>")
_VALUE = re.compile(r"=(?!>)")
_STRETCH = 262_144
"""How many bytes are queried at once, so that the matches take bounded memory."""

Tagged = tuple[str, str, str, int, str]
_LOADED: dict[str, tuple[Any, Any]] = {}


def tagged(asked: dict[str, Any], source: bytes) -> tuple[list[Tagged], bool]:
    """Return the symbols as `(name, kind, inside, line, signature)`, in order, and whether the whole source could be parsed."""
    parser, query = _load_parser(asked)
    root = parser.parse(source[:_MOST_BYTES]).root_node
    found = sorted(_definitions(query, root), key=lambda one: (one[1].start_byte, -one[1].end_byte, one[0] != "within"))
    return list(_symbols(found, source))[:_MOST], not root.has_error and len(source) <= _MOST_BYTES


def _load_parser(asked: dict[str, Any]) -> tuple[Any, Any]:
    key = f"{asked['package']}.{asked['function']}"
    if key not in _LOADED:
        sys.path += [folder for folder in asked["folders"] if folder not in sys.path]
        tree_sitter = importlib.import_module("tree_sitter")
        language = tree_sitter.Language(getattr(importlib.import_module(asked["package"]), asked["function"])())
        _LOADED[key] = tree_sitter.Parser(language), tree_sitter.QueryCursor(tree_sitter.Query(language, asked["query"]))
    return _LOADED[key]


def _definitions(query: Any, root: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the kind, the node and the other captures of each definition.

    If several patterns match one name, the first pattern counts.
    """
    found: dict[tuple[int, bool], tuple[int, str, Any, dict[str, Any]]] = {}
    for start in range(0, root.end_byte, _STRETCH):
        query.set_byte_range(start, start + _STRETCH)
        for pattern, captured in query.matches(root):
            nodes = {capture: those[0] for capture, those in captured.items()}
            kind = next(capture for capture in nodes if capture not in ("name", "inside", "until"))
            key = (nodes.get("name", nodes[kind]).start_byte, kind in ("local", "within"))
            if key not in found or pattern < found[key][0]:
                found[key] = (pattern, kind, nodes[kind], nodes)
        if len(found) > _MOST:
            break
    return [(kind, node, nodes) for _, kind, node, nodes in found.values()]


def _symbols(found: list[tuple[str, Any, dict[str, Any]]], source: bytes) -> Iterator[Tagged]:
    around: list[tuple[int, str, str]] = []
    for kind, node, nodes in found:
        while around and around[-1][0] <= node.start_byte:
            around.pop()
        _, holder, inside = around[-1] if around else (0, "", "")
        if holder in _HIDES:
            continue
        if kind == "local":
            around.append((node.end_byte, kind, inside))
            continue
        within, name = _split_name(nodes, inside)
        full = f"{within}.{name}" if within else name
        if kind in _HOLDERS or kind in _HIDES:
            around.append((node.end_byte, kind, full))
        if kind != "within":
            kind = _kind(kind, name, within, holder, inside)
            yield (
                name,
                kind,
                within,
                nodes["name"].start_point[0] + 1,
                _first_line(node, nodes, source, of_value=kind in ("variable", "constant")),
            )


def _kind(kind: str, name: str, within: str, holder: str, inside: str) -> str:
    if kind == "function":
        return "method" if holder not in _NO_METHODS or within != inside else kind
    return "constant" if kind == "variable" and name.isupper() else kind


def _split_name(nodes: dict[str, Any], inside: str) -> tuple[str, str]:
    """Return the enclosing definition and the symbol's own name."""
    text = _text(nodes["name"])
    while (plain := _GENERIC.sub("", text)) != text:
        text = plain
    parts = [inside, _text(nodes["inside"]) if "inside" in nodes else "", *text.replace("::", ".").split(".")]
    *before, name = [part for part in parts if part] or [""]
    return ".".join(before), name


def _text(node: Any) -> str:
    return str(node.text[:_SIGNATURE_CHARS].decode("utf-8", "replace"))


def _first_line(node: Any, nodes: dict[str, Any], source: bytes, *, of_value: bool) -> str:
    """Return the line with the name, without the body or the value: a value may be long or secret."""
    name = nodes["name"]
    before = source[_start(node, name, source) : name.start_byte].decode("utf-8", "replace")
    after = source[name.start_byte : _until(node, nodes)].decode("utf-8", "replace").split("\n", 1)[0]
    if of_value:
        before, after = "" if "=" in before else before, _VALUE.split(after, maxsplit=1)[0]
    line = (before + after).strip().removesuffix("=>").rstrip(" \t\r{=:;,")
    return line if len(line) <= _SIGNATURE_CHARS else line[:_SIGNATURE_CHARS] + "…"


def _start(node: Any, name: Any, source: bytes) -> int:
    """Return the offset at which the shown line begins, including preceding words such as `export`."""
    begin = int(name.start_byte - name.start_point[1])
    start = max(int(node.start_byte), begin)
    return begin if start - begin <= 80 and _WORDS.fullmatch(source, begin, start) else start


def _until(node: Any, nodes: dict[str, Any]) -> int:
    """Return the offset at which the shown line ends: at the body or value, or at the maximum length."""
    value = nodes.get("until") or node.child_by_field_name("body") or node.child_by_field_name("value")
    until = (value.child_by_field_name("body") or value).start_byte if value else node.end_byte
    end = int(nodes["name"].end_byte)
    return min(max(int(until), end), end + 4 * _SIGNATURE_CHARS)
