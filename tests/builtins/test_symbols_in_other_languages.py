"""Tests of `find_symbol` in languages other than Python, through an engine with the grammars of the extra `symbols`."""

from __future__ import annotations

import os
import re
import string
import subprocess
import sys
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import callgate
import tests
from callgate import Engine
from callgate.builtins import symbol_tools
from callgate.memory import Memory
from tests.builtins.fakes import Box
from tests.builtins.symbol_sources import HIDDEN, SOURCES, Expected
from tests.memory.fakes import make
from tests.waiting import PATIENCE_S

needs_grammars = pytest.mark.skipif(
    any(
        find_spec(re.split(r"[^\w-]", needed)[0].replace("-", "_")) is None
        for needed in requires("callgate") or ()
        if needed.endswith("extra == 'symbols'")
    ),
    reason="needs the extra: callgate[symbols]",
)


@needs_grammars
@pytest.mark.parametrize("file", SOURCES)
async def test_definitions_in_each_language_have_kind_position_and_signature(tmp_path: Path, file: str) -> None:
    """Every definition outside a function is found at its name's position, with the source's wording and without body or value."""
    source, expected = SOURCES[file]
    (tmp_path / file).write_text(source)
    async with Engine(symbol_tools()) as engine:

        async def found(**asked: Any) -> Expected:
            structured: Any = (await make(engine, tmp_path, "find_symbol", max_symbols=200, **asked)).structured
            assert structured["files_with_mistakes"] == []
            assert "hunter2" not in str(structured)
            return [(one["name"], one["kind"], int(one["at"].removeprefix(f"{file}:")), one["signature"]) for one in structured["symbols"]]

        names = [name.rpartition(".")[2] for name, *_ in expected]
        assert await found(name=names[-1]) == [one for one, name in zip(expected, names, strict=True) if name == names[-1]]
        for letter in letters_of([*names, *HIDDEN]):
            told = await found(name=letter, match="substring", ignore_case=True)
            assert told == [one for one, name in zip(expected, names, strict=True) if letter in name.lower()]


def letters_of(names: list[str]) -> list[str]:
    """A few letters of which each name has one: asked for by them, every name is found that there is."""
    letters = []
    while names:
        letters.append(max(string.ascii_lowercase, key=lambda letter: sum(letter in name.lower() for name in names)))
        names = [name for name in names if letters[-1] not in name.lower()]
    return letters


@needs_grammars
def test_names_are_searched_as_their_language_writes_them(tmp_path: Path) -> None:
    """Names may contain `::`, `$`, `#` or `?`, and match exactly, by prefix or with case ignored, as in Python."""
    for file, (source, _) in SOURCES.items():
        (tmp_path / file).write_text(source)
    box = Box(symbol_tools(), tmp_path)

    def places(name: str, **more: Any) -> list[str]:
        return [one["at"] for one in box("find_symbol", name=name, **more)["symbols"]]

    assert places("Shop::Desk::close") == ["desk.rb:4"]
    assert places("inner::Desk::close") == ["desk.cpp:6", "desk.cpp:16"]
    assert places("closed?") == ["desk.rb:7"]
    assert places("$scope") == ["desk.js:15"]
    assert places("#rate") == ["desk.js:6"]
    assert places("Till.cl", match="prefix") == ["desk.php:4", "desk.rs:6", "desk.ts:1"]
    assert places("ITILL", ignore_case=True) == ["Desk.cs:13"]


@needs_grammars
async def test_the_index_does_not_change_answers_for_other_languages(tmp_path: Path) -> None:
    """The answers are equal without the index, before and after it is built, and after a write."""
    root = tmp_path / "work"
    root.mkdir()
    for file, (source, _) in SOURCES.items():
        (root / file).write_text(source)
    memory = Memory(tmp_path / "m.db")
    plain = Box(symbol_tools(), root)
    async with Engine(symbol_tools(index=memory.index), memory=memory) as engine:
        for name in ("Desk", "close", "Desk"):
            assert (await make(engine, root, "find_symbol", name=name)).structured == plain("find_symbol", name=name)
            assert await memory.settled()
        (root / "new.go").write_text("package a\n\ntype Desk struct{}\n")
        answer = plain("find_symbol", name="Desk")
        assert "new.go:3" in [one["at"] for one in answer["symbols"]]
        assert (await make(engine, root, "find_symbol", name="Desk")).structured == answer


@needs_grammars
def test_definitions_around_syntax_errors_are_found_in_other_languages(tmp_path: Path) -> None:
    """Other definitions of the file are found, and the file is named."""
    (tmp_path / "broken.go").write_text("package a\n\nfunc one() {}\n\nfunc two( {\n\nfunc Four() {}\n")
    (tmp_path / "nul.rs").write_bytes(b"// " + b"x" * 9000 + b"\n\0\0\nfn four() {}\n")
    (tmp_path / "latin.rb").write_bytes("# caf\xe9\ndef four; end\n".encode("latin-1"))
    (tmp_path / "marked.js").write_bytes("\ufefffunction four() {}\n".encode())
    (tmp_path / "wide.js").write_bytes("function four() {}\n".encode("utf-16"))
    (tmp_path / "lines.c").write_bytes(b"int four(void)\r\n{\r\n  return 4;\r\n}\r\n")
    result = Box(symbol_tools(), tmp_path)("find_symbol", name="four")
    assert [(one["at"], one["signature"]) for one in result["symbols"]] == [
        ("latin.rb:2", "def four; end"),
        ("lines.c:1", "int four(void)"),
        ("marked.js:1", "function four()"),
        ("nul.rs:3", "fn four()"),
    ]
    assert (result["files_with_mistakes"], result["files_skipped"]) == (["nul.rs"], 1)
    broken = Box(symbol_tools(), tmp_path)("find_symbol", name="one", path="broken.go")
    assert [one["at"] for one in broken["symbols"]] == ["broken.go:3"]
    assert broken["files_with_mistakes"] == ["broken.go"]
    assert "mistakes" in broken["note"]


@needs_grammars
@pytest.mark.parametrize(
    ("file", "bomb"),
    [
        ("a.js", "x = " + "(" * 300_000),
        ("a.java", "class A {" * 100_000),
        ("a.rb", "<<A," * 100_000),
        ("a.cpp", "a<" * 300_000),
        ("a.ts", "const a1 = 1;" * 300_000),
        ("a.go", 'package a\nvar x = "' + "a" * 3_000_000),
    ],
    ids=["brackets", "classes", "heredocs", "templates", "one line", "one word"],
)
def test_a_source_that_breaks_a_grammar_is_named_and_does_not_affect_other_files(tmp_path: Path, file: str, bomb: str) -> None:
    """The parser's process may end or hang; other files are still searched."""
    (tmp_path / file).write_text(f"{bomb}\n// desk_after\n")
    (tmp_path / "z_last.go").write_text("package a\nfunc desk_after() {}\n")
    (tmp_path / "z_last.py").write_text("def desk_after(): ...\n")
    result = Box(symbol_tools(), tmp_path)("find_symbol", name="desk_after")
    assert [one["at"] for one in result["symbols"]] == ["z_last.go:2", "z_last.py:1"]
    assert (result["files_with_mistakes"], result["truncated"]) == ([file], False)


@needs_grammars
def test_the_beginning_of_a_source_too_large_to_parse_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The full syntax tree would exceed the memory limit of the parser's process; the answer names the file."""
    monkeypatch.setattr("callgate.builtins._symbol_search._FILE_S", PATIENCE_S)
    monkeypatch.setattr("callgate.builtins._symbol_search.SymbolSearch.__init__.__kwdefaults__", {"budget_s": PATIENCE_S})
    (tmp_path / "a.js").write_text("var a1;\n" * 500_000)
    result = Box(symbol_tools(), tmp_path)("find_symbol", name="a1", max_symbols=3)
    assert [one["at"] for one in result["symbols"]] == ["a.js:1", "a.js:2", "a.js:3"]
    assert result["files_with_mistakes"] == ["a.js"]


def test_files_that_need_the_symbols_extra_are_counted_and_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python files are still searched, and an answer for a folder of only Python files has no note."""
    monkeypatch.setattr("callgate.builtins._languages.find_spec", lambda name: None)
    for file in ("desk.js", "till.js", "desk.go", "desk.lua"):
        (tmp_path / file).write_text("function desk() {}\n")
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "desk.py").write_text("def desk(): ...\n")
    box = Box(symbol_tools(), tmp_path)
    result = box("find_symbol", name="desk")
    assert [one["at"] for one in result["symbols"]] == ["python/desk.py:1"]
    assert (result["files_searched"], result["files_not_readable"]) == (1, 3)
    assert result["note"] == "3 files in Go, JavaScript were not looked at: pip install 'callgate[symbols]'"
    assert not {"note", "files_not_readable"} & set(box("find_symbol", name="desk", path="python"))


@needs_grammars
def test_a_missing_grammar_does_not_disable_other_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A language is searched if its own grammar package is installed."""
    monkeypatch.setattr("callgate.builtins._languages.find_spec", lambda name: None if name == "tree_sitter_go" else find_spec(name))
    (tmp_path / "desk.js").write_text("function desk() {}\n")
    (tmp_path / "desk.go").write_text("package a\nfunc desk() {}\n")
    result = Box(symbol_tools(), tmp_path)("find_symbol", name="desk")
    assert [one["at"] for one in result["symbols"]] == ["desk.js:1"]
    assert result["files_not_readable"] == 1


def test_grammars_are_not_imported_in_the_engine_process(tmp_path: Path) -> None:
    """Only the child process imports grammars; the engine's process checks only that they are installed."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom callgate.builtins import symbol_tools\nfrom tests.builtins.fakes import Box\n"
        "Path('a.go').write_text('package a\\nfunc desk() {}\\n')\n"
        "Box(symbol_tools(), Path('.').resolve())('find_symbol', name='desk')\n"
        "print([name for name in sys.modules if name.startswith('tree_sitter')])\n"
    )
    paths = os.pathsep.join([*(str(Path(module.__file__ or "").parents[1]) for module in (callgate, tests))])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr
