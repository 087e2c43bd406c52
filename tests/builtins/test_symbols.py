"""Tests of `find_symbol`: it finds definitions in valid and invalid sources, with and without an index."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import callgate
from callgate import Engine
from callgate._workspace import Workspace
from callgate.builtins import _symbol_search, symbol_tools, workspace_tools
from callgate.builtins._python_symbols import outline
from callgate.builtins._symbol_search import SymbolSearch
from callgate.builtins._text_search import Search
from callgate.memory import Memory
from tests.builtins.fakes import Box
from tests.memory.fakes import make

SOURCE = '''"""A desk."""

import os
from typing import Final

DESK_HOURS: Final[int] = 8
KEY = "hunter2"
first, SECOND = 1, 2

if os.name == "posix":
    def closing(hour: int = 5, /, *, late: bool = False) -> str:
        return "close"


class Desk(object, metaclass=type):
    limit: int = 3

    def close(self) -> None:
        def close_inner() -> None:
            close = 1

    @property
    async def closes(self, *names: str) -> list[str]:
        return []

    class Drawer:
        def close(self) -> None: ...


def use() -> None:
    Desk().close()
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "desk.py").write_text(SOURCE)
    return folder


def found(root: Path, name: str, **arguments: Any) -> list[tuple[str, str, str, str]]:
    result = Box(symbol_tools(), root)("find_symbol", name=name, **arguments)
    return [(one["name"], one["kind"], one["at"], one["signature"]) for one in result["symbols"]]


def test_a_definition_is_found_with_its_kind_position_and_signature(root: Path) -> None:
    """The kinds are class, function, method, constant and other names. Uses of a name and values are not included."""
    assert found(root, "Desk") == [("Desk", "class", "desk.py:15", "class Desk(object, metaclass=type)")]
    assert found(root, "closing") == [("closing", "function", "desk.py:11", "def closing(hour: int=5, /, *, late: bool=False) -> str")]
    assert found(root, "DESK_HOURS") == [("DESK_HOURS", "constant", "desk.py:6", "DESK_HOURS: Final[int]")]
    assert found(root, "KEY") == [("KEY", "constant", "desk.py:7", "KEY")]
    assert found(root, "first") == [("first", "variable", "desk.py:8", "first")]
    assert found(root, "limit") == [("Desk.limit", "variable", "desk.py:16", "limit: int")]
    assert found(root, "closes") == [("Desk.closes", "method", "desk.py:23", "async def closes(self, *names: str) -> list[str]")]
    assert found(root, "close_inner") == []


def test_a_name_matches_exactly_or_in_part_with_or_without_its_class(root: Path) -> None:
    """The match is exact by default, and results are ordered by path and line."""
    assert [name for name, *_ in found(root, "close")] == ["Desk.close", "Desk.Drawer.close"]
    assert [name for name, *_ in found(root, "Desk.close")] == ["Desk.close"]
    assert [name for name, *_ in found(root, "Drawer.close")] == ["Desk.Drawer.close"]
    assert [name for name, *_ in found(root, "clos", match="prefix")] == ["closing", "Desk.close", "Desk.closes", "Desk.Drawer.close"]
    assert [name for name, *_ in found(root, "eC", match="substring")] == []
    assert [name for name, *_ in found(root, "eco", match="substring", ignore_case=True)] == ["SECOND"]
    assert [name for name, *_ in found(root, "desk", ignore_case=True)] == ["Desk"]
    assert [name for name, *_ in found(root, "DESK.CLOSE", ignore_case=True)] == ["Desk.close"]
    assert found(root, "desk") == []


def test_definitions_around_a_syntax_error_are_found_and_the_file_is_named(root: Path) -> None:
    """An error hides only the definitions near it, and the answer names the file."""
    (root / "broken.py").write_text(
        "def one():\n    pass\n\ndef two(:\n    pass\n\n@cache\ndef three(a):\n    return (\n\nclass Four:\n    x = 1\n"
    )
    result = Box(symbol_tools(), root)("find_symbol", name="o", match="substring", path="broken.py")
    assert [one["at"] for one in result["symbols"]] == ["broken.py:1", "broken.py:11"]
    assert result["files_with_mistakes"] == ["broken.py"]
    assert "note" in result
    assert found(root, "Four") == [("Four", "class", "broken.py:11", "class Four")]
    assert found(root, "two") == found(root, "three") == []


@pytest.mark.parametrize(
    "bomb",
    ["x = " + "(" * 100_000, "x = " + "-" * 200_000 + "1", "x = a" + ".b" * 100_000, "x = " + "[" * 150 + "]" * 150, "def f():\n" * 3_000],
    ids=["brackets", "signs", "attributes", "nested", "unfinished"],
)
def test_a_source_that_overloads_the_parser_does_not_affect_other_files(root: Path, bomb: str) -> None:
    """The source is parsed in another process, so other files are still searched."""
    (root / "a_bomb.py").write_text(f"def before(): ...\n{bomb}\ndef desk_after(): ...\n")
    (root / "z_last.py").write_text("def desk_after(): ...\n")
    assert ("desk_after", "function", "z_last.py:1", "def desk_after()") in found(root, "desk_after")


def test_a_source_that_ends_the_parser_process_does_not_affect_other_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is named, and a new process reads the others."""
    code = _symbol_search._CODE.replace("    if asked:", "    b'fatal' in source and sys.exit()\n    if asked:")
    monkeypatch.setattr(_symbol_search, "_CODE", code)
    (root / "a_bomb.py").write_text("def desk_after(): ... # fatal\n")
    (root / "z_last.py").write_text("def desk_after(): ...\n")
    result = Box(symbol_tools(), root)("find_symbol", name="desk_after")
    assert [one["at"] for one in result["symbols"]] == ["z_last.py:1"]
    assert result["files_with_mistakes"] == ["a_bomb.py"]


def test_a_file_with_one_very_long_word_is_searched_in_linear_time(root: Path) -> None:
    """The search time must be linear in the file's length; a quadratic search of this file would take hours."""
    (root / "blob.py").write_text("DATA = '" + "a" * 2_000_000 + "'\n" + " " * 500_000 + "\n")
    assert found(root, "a", match="substring", ignore_case=True)[0][0] == "DATA"
    assert found(root, "aaaa", match="substring") == []


def test_files_that_are_not_text_are_skipped_and_counted_and_latin_1_is_read(root: Path) -> None:
    """Covers binary files, UTF-16, Latin-1, a byte order mark, other languages and ignored files."""
    (root / "binary.py").write_bytes(b"def odd(): ...\n\0\0")
    (root / "wide.py").write_bytes("def odd(): ...\n".encode("utf-16"))
    (root / "latin.py").write_bytes("# coding: latin-1\nCAFÉ = 'é'\ndef odd(): ...\n".encode("latin-1"))
    (root / "marked.py").write_bytes("\ufeffdef odd(): ...\n".encode())
    (root / "other.lua").write_text("function odd() end\n")
    (root / "ignored.py").write_text("def odd(): ...\n")
    (root / ".gitignore").write_text("ignored.py\n")
    result = Box(symbol_tools(), root)("find_symbol", name="odd")
    assert [one["at"] for one in result["symbols"]] == ["latin.py:3", "marked.py:1"]
    assert result["files_skipped"] == 2


@pytest.mark.parametrize("name", ["", ".", "Desk.", "a b", "1", "x" * 201, "def f()"])
def test_an_invalid_symbol_name_is_refused(root: Path, name: str) -> None:
    result = Box(symbol_tools(), root)("find_symbol", name=name)
    assert (result["success"], result["code"]) == (False, "cannot_do")


def test_without_a_python_executable_the_error_names_grep_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """callgate may run in a program that embeds Python and has no executable."""
    monkeypatch.setattr("sys.executable", "")
    assert "grep_files" in Box(symbol_tools(), root)("find_symbol", name="Desk")["error"]


def test_an_answer_is_bounded_by_count_size_and_time_and_marked_truncated(root: Path) -> None:
    (root / "many.py").write_text("\n".join(f"def many_{number}(): ..." for number in range(500)))
    few = Box(symbol_tools(), root)("find_symbol", name="many_", match="prefix", max_symbols=3)
    assert (len(few["symbols"]), few["truncated"]) == (3, True)
    (root / "wide.py").write_text("\n".join(f"def wide_{number}({'argument_' * 30}): ..." for number in range(150)))
    wide = Box(symbol_tools(), root)("find_symbol", name="wide_", match="prefix", max_symbols=200)
    assert 0 < len(wide["symbols"]) < 150
    assert wide["truncated"]
    with Workspace(str(root)) as workspace:
        late = SymbolSearch(Search(workspace, stopped=lambda: False), budget_s=0.0).run(
            "Desk", ".", match="exact", ignore_case=False, most=5
        )
    assert (late["symbols"], late["truncated"]) == ([], True)


async def test_symbols_of_a_written_file_are_found_before_and_after_indexing(tmp_path: Path, root: Path) -> None:
    """D38: the write marks the file, the background thread reads it again, and searches in between are correct."""
    for number in range(30):
        (root / f"other{number}.py").write_text("value = 1\n")
    memory = Memory(tmp_path / "m.db")
    tools = [*workspace_tools(), *symbol_tools(index=memory.index)]
    async with Engine(tools, memory=memory) as engine:

        async def places(name: str) -> list[str]:
            result = await make(engine, root, "find_symbol", name=name)
            return [one["at"] for one in result.structured["symbols"]]  # type: ignore[index]

        assert await places("Desk") == ["desk.py:15"]
        assert await memory.settled()
        assert memory.index.count() == 31
        await make(engine, root, "write_file", path="new.py", content="class Till: ...\n")
        assert await places("Till") == ["new.py:1"]  # whether or not the file is indexed yet
        assert await memory.settled()
        assert await places("Till") == ["new.py:1"]
        await make(engine, root, "write_file", path="new.py", content="\n\nclass Till: ...\n")
        assert await memory.settled()
        assert await places("Till") == ["new.py:3"]
        assert await places("Desk") == ["desk.py:15"]


def test_symbols_of_the_memory_package_are_found_where_they_are_defined(tmp_path: Path) -> None:
    """Compares the answers for callgate's own sources, with and without the index, with a walk through the syntax trees."""
    source = Path(callgate.__file__).parent / "memory"
    with Memory(tmp_path / "m.db") as memory:
        plain, indexed = Box(symbol_tools(), source), Box(symbol_tools(index=memory.index), source)
        memory.index.refresh(str(source), None, lambda: False)
        for name in ("Memory", "close", "search", "Value", "MOST_MARKS", "log"):
            expected = [
                f"{path.name}:{getattr(node, 'lineno', 0)}"
                for path in sorted(source.glob("*.py"))
                for node in ast.walk(ast.parse(path.read_text()))
                if name in (getattr(node, "name", ""), *_targets(node)) and not isinstance(node, ast.alias)
            ]
            first = plain("find_symbol", name=name, max_symbols=200)
            assert [one["at"] for one in first["symbols"]] == expected
            assert indexed("find_symbol", name=name, max_symbols=200) == first


def _targets(node: ast.AST) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@given(st.text(alphabet='abc:()\n @="#[],{}\\x 1', max_size=80))
def test_outline_accepts_any_text_and_returns_lines_within_it(text: str) -> None:
    symbols, _ = outline(text)
    assert all(1 <= line <= text.count("\n") + 1 for *_, line, _ in symbols)
