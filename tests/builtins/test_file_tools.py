"""Tests of the file tools: their results, and their errors for files that a model may not or cannot access."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from callgate import AbortController, Engine, Scope
from callgate.builtins import command_tools, fetch_tool, result_tools, workspace_tools
from callgate.tools import TouchedKeys, conflict
from callgate.tools.registry import ToolRegistry
from tests.builtins.fakes import Box, context


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text("CANARY")
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "src/app.py").write_text("import os\n\nprint(os.name)\n")
    (root / "notes.txt").write_text("one\ntwo\nthree\n")
    return root


@pytest.fixture
def files(root: Path) -> Box:
    return Box(workspace_tools(), root)


def refused(result: Any) -> str:
    assert result["success"] is False
    return str(result["error"])


def test_every_built_in_tool_registers_with_its_effect_category_and_runner() -> None:
    """Each tool has a name, a description, parameters, a category and an effect."""
    tools = [*workspace_tools(), *command_tools(), *result_tools(Engine([]).blobs), fetch_tool()]
    registry = ToolRegistry(tools)
    bound = {tool.name: registry.register(tool, layer="capability") for tool in tools}
    assert {name: (item.effect, item.category, item.runner) for name, item in bound.items()} == {
        "read_file": ("none", "safe_chain", "thread"),
        "write_file": ("idempotent", "dangerous", "thread"),
        "edit_file": ("once", "dangerous", "thread"),
        "list_files": ("none", "safe_chain", "thread"),
        "glob_files": ("none", "safe_chain", "thread"),
        "grep_files": ("none", "safe_chain", "thread"),
        "run_command": ("once", "dangerous", "process"),
        "read_result": ("none", "safe_chain", "thread"),
        "search_result": ("none", "safe_chain", "thread"),
        "fetch_url": ("none", "async_required", "inline"),
    }


def test_a_file_is_read_in_pages_to_its_end(files: Box, root: Path) -> None:
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(5000)))
    text, pages = "", 0
    offset: int | None = 0
    while offset is not None:
        page = files("read_file", path="long.txt", offset=offset)
        text, offset, pages = text + page["content"], page["next_offset"], pages + 1
    assert text == (root / "long.txt").read_text()
    assert pages > 1
    assert page["total_lines"] == 5000


def test_a_page_never_splits_a_line_unless_the_line_alone_is_too_long(files: Box, root: Path) -> None:
    (root / "wide.txt").write_text("é" * 20_000 + "\nend")
    first = files("read_file", path="wide.txt")
    assert "only its beginning is shown" in first["note"]
    assert len(first["content"].encode()) <= 12_000
    assert files("read_file", path="wide.txt", offset=first["next_offset"])["content"] == "end"


def test_binary_files_are_refused_and_undecodable_bytes_are_counted(files: Box, root: Path) -> None:
    (root / "bin.dat").write_bytes(b"\x89PNG\0\0")
    (root / "latin.txt").write_bytes(b"caf\xe9\n")
    assert "is not text" in refused(files("read_file", path="bin.dat"))
    assert files("read_file", path="latin.txt")["undecodable"] == 1


def test_an_offset_beyond_the_end_returns_an_empty_page(files: Box) -> None:
    """E13: an empty result is a success."""
    page = files("read_file", path="notes.txt", offset=99)
    assert (page["content"], page["next_offset"], page["total_lines"]) == ("", None, 3)


def test_a_file_too_large_to_read_is_refused_before_it_is_read(files: Box, root: Path) -> None:
    with (root / "huge").open("wb") as file:
        file.truncate(2**34)
    assert "too large" in refused(files("read_file", path="huge"))


def test_a_read_without_a_workspace_is_refused(files: Box) -> None:
    files.workspace = ""
    assert "no workspace" in refused(files("read_file", path="notes.txt"))


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/passwd", "src/../../outside.txt", "out", "x\0", ""])
@pytest.mark.parametrize("name", ["read_file", "write_file", "edit_file", "list_files", "grep_files"])
def test_no_file_tool_reaches_outside_the_workspace(files: Box, root: Path, name: str, path: str) -> None:
    (root / "out").symlink_to("../outside.txt")
    more = {"write_file": {"content": "x"}, "edit_file": {"old": "C", "new": "D"}, "grep_files": {"pattern": "CANARY"}}
    error = refused(files(name, path=path, **more.get(name, {})))
    assert "CANARY" not in error
    assert (root.parent / "outside.txt").read_text() == "CANARY"


def test_a_write_creates_missing_folders_and_keeps_the_file_mode(files: Box, root: Path) -> None:
    assert files("write_file", path="a/b/c.sh", content="x\n") == {"path": "a/b/c.sh", "bytes": 2, "created": True}
    (root / "a/b/c.sh").chmod(0o750)
    assert files("write_file", path="a/b/c.sh", content="y\n")["created"] is False
    assert (root / "a/b/c.sh").stat().st_mode & 0o777 == 0o750
    assert (root / "a/b/c.sh").read_text() == "y\n"


def test_text_with_a_lone_surrogate_is_refused_and_nothing_is_written(files: Box, root: Path) -> None:
    assert "lone surrogate" in refused(files("write_file", path="s.txt", content="a\udc80"))
    assert not (root / "s.txt").exists()


def test_an_edit_replaces_exactly_one_occurrence(files: Box, root: Path) -> None:
    assert files("edit_file", path="notes.txt", old="two", new="2") == {"path": "notes.txt", "replacements": 1, "lines": [2]}
    assert (root / "notes.txt").read_text() == "one\n2\nthree\n"


def test_an_ambiguous_edit_names_the_lines_and_changes_nothing(files: Box, root: Path) -> None:
    (root / "many.txt").write_text("x\ny\nx\n")
    error = refused(files("edit_file", path="many.txt", old="x", new="z"))
    assert "2 times" in error
    assert "lines 1, 3" in error
    assert (root / "many.txt").read_text() == "x\ny\nx\n"
    assert files("edit_file", path="many.txt", old="x", new="z", replace_all=True)["lines"] == [1, 3]


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("absent", "Read the file"),
        ("two\nTHREE", "first line occurs at lines 2"),
        ("", "nothing to replace"),
        ("one", "nothing to replace"),
    ],
)
def test_an_impossible_edit_is_refused_with_a_hint(files: Box, old: str, hint: str) -> None:
    assert hint in refused(files("edit_file", path="notes.txt", old=old, new="one"))


def test_an_edit_with_the_wrong_line_endings_is_refused_and_names_the_right_ones(files: Box, root: Path) -> None:
    (root / "dos.txt").write_bytes(b"a\r\nb\r\n")
    assert "\\r\\n" in refused(files("edit_file", path="dos.txt", old="a\nb", new="c"))


def test_concurrent_edits_through_two_names_of_one_file_lose_no_edit(files: Box, root: Path) -> None:
    """`Workspace.editing` serialises the edits of several threads."""
    (root / "n.txt").write_text("".join(f"<{number}>\n" for number in range(20)))
    (root / "alias.txt").symlink_to("n.txt")

    def edit(number: int) -> None:
        files("edit_file", path="alias.txt" if number % 2 else "n.txt", old=f"<{number}>", new=f"[{number}]")

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (root / "n.txt").read_text() == "".join(f"[{number}]\n" for number in range(20))
    assert (root / "alias.txt").is_symlink()


def test_list_files_gives_kinds_and_sizes_and_skips_installed_packages(files: Box, root: Path) -> None:
    (root / "node_modules/p").mkdir(parents=True)
    (root / "out").symlink_to("../outside.txt")
    entries = files("list_files", depth=3)["entries"]
    assert entries == [
        {"path": "node_modules", "kind": "directory"},
        {"path": "notes.txt", "kind": "file", "bytes": 14},
        {"path": "out", "kind": "link"},
        {"path": "src", "kind": "directory"},
        {"path": "src/app.py", "kind": "file", "bytes": 26},
    ]


def test_an_edit_that_would_make_a_file_huge_changes_nothing(files: Box, root: Path) -> None:
    """Two short calls cannot fill the memory or the disk: every occurrence of a letter becomes a long text."""
    (root / "a.txt").write_text("a" * 5_000)
    error = refused(files("edit_file", path="a.txt", old="a", new="b" * 5_000, replace_all=True))
    assert "25,000,000 bytes" in error
    assert "16,777,216 is the limit" in error
    assert (root / "a.txt").read_text() == "a" * 5_000


def test_a_search_with_a_very_long_glob_is_refused(files: Box) -> None:
    assert "4,096 is the limit" in refused(files("grep_files", pattern="two", glob="[a-" * 2_000))


@pytest.mark.parametrize("search", [("glob_files", {}), ("grep_files", {"pattern": "two"})], ids=["glob_files", "grep_files"])
def test_repeated_double_stars_are_matched_like_one(files: Box, search: tuple[str, dict[str, str]]) -> None:
    """A glob of many of them takes as many steps for each file as one: the search runs in a thread that nothing can stop."""
    tool, arguments = search
    name = "pattern" if tool == "glob_files" else "glob"
    short, steps = counted_lines(lambda: files(tool, **arguments, **{name: "**/*.txt"}))
    long, more_steps = counted_lines(lambda: files(tool, **arguments, **{name: "**/" * 1_000 + "*.txt"}))
    assert (short | {"pattern": ""}) == (long | {"pattern": ""})
    assert more_steps - steps < 10_000


def counted_lines(call: Callable[[], Any]) -> tuple[Any, int]:
    """Return what `call` returns, and how many lines of Python it executes in this thread."""
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        returned = call()
        return returned, lines
    finally:
        sys.settrace(before)


def test_globs_respect_gitignore_and_exclude_version_control(files: Box, root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git/config.py").write_text("")
    (root / "build").mkdir()
    (root / "build/out.py").write_text("")
    (root / "src/keep.log").write_text("")
    (root / "src/drop.log").write_text("")
    (root / ".gitignore").write_text("build/\n*.log\n")
    (root / "src/.gitignore").write_text("!keep.log\n")
    assert files("glob_files", pattern="**/*.py")["paths"] == ["src/app.py"]
    assert files("glob_files", pattern="src/*.log")["paths"] == ["src/keep.log"]
    assert files("glob_files", pattern="none/**")["paths"] == []


def test_grep_returns_matching_lines_and_no_match_is_a_success(files: Box) -> None:
    """E13: an empty result is a success."""
    assert files("grep_files", pattern="os.")["matches"] == [{"path": "src/app.py", "line": 3, "text": "print(os.name)"}]
    assert files("grep_files", pattern="TWO", ignore_case=True)["matches"] == [{"path": "notes.txt", "line": 2, "text": "two"}]
    nothing = files("grep_files", pattern="absent")
    assert (nothing["matches"], nothing["truncated"], nothing["files_searched"]) == ([], False, 2)
    assert files("grep_files", pattern="two", path="notes.txt")["files_searched"] == 1
    assert files("grep_files", pattern="two", glob="**/*.py")["matches"] == []


def test_grep_ignores_case_also_in_text_whose_lower_case_is_longer(files: Box, root: Path) -> None:
    """The lower case of a Turkish I with a dot has two characters, all others have one."""
    (root / "cities.txt").write_text("\u0130stanbul\nAnkara\n", encoding="utf-8")
    for pattern in ("Ankara", "ankara", "ANKARA"):
        found = files("grep_files", pattern=pattern, path="cities.txt", ignore_case=True)
        assert found["matches"] == [{"path": "cities.txt", "line": 2, "text": "Ankara"}]
    assert files("grep_files", pattern="\u0130STANBUL", path="cities.txt", ignore_case=True)["matches"][0]["line"] == 1


def test_grep_accepts_a_regular_expression_and_refuses_an_invalid_one(files: Box) -> None:
    found = files("grep_files", pattern=r"^t\w+$", regex=True)["matches"]
    assert [match["text"] for match in found] == ["two", "three"]
    assert "not valid" in refused(files("grep_files", pattern="(", regex=True))


def test_a_regular_expression_with_catastrophic_backtracking_is_stopped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's `re` backtracks, so a model's pattern could otherwise block the engine."""
    from callgate.builtins._regex import Matcher, RegexStopped

    with pytest.raises(RegexStopped) as caught, Matcher(r"(a+)+$", budget_s=1.0) as matcher:
        matcher.find("a" * 60 + "b", 10)
    assert caught.value.code == "regex_budget"


def test_grep_stops_at_max_matches_and_reports_truncation(files: Box, root: Path) -> None:
    (root / "many.txt").write_text("hit\n" * 1000)
    found = files("grep_files", pattern="hit", max_matches=7)
    assert (len(found["matches"]), found["truncated"]) == (7, True)


def test_grep_ends_early_when_the_turn_is_killed(root: Path) -> None:
    controller = AbortController()
    controller.abort("killed")
    grep = next(tool for tool in workspace_tools() if tool.name == "grep_files")
    found: Any = grep.invoke(context(root, controller=controller), {"pattern": "two"})
    assert (found["matches"], found["truncated"]) == ([], True)


def test_the_workspace_root_stays_the_folder_that_was_opened_first(files: Box, root: Path) -> None:
    """The tool keeps an open directory handle, so it does not follow the new target of the path (paths.jsonl)."""
    assert files("read_file", path="notes.txt")["lines"] == 3
    root.rename(root.parent / "moved")
    (root.parent / "elsewhere").mkdir()
    (root.parent / "elsewhere/notes.txt").write_text("CANARY")
    root.symlink_to("elsewhere")
    assert "CANARY" not in files("read_file", path="notes.txt")["content"]


def test_a_root_that_was_deleted_and_recreated_is_opened_again(files: Box, root: Path) -> None:
    assert files("read_file", path="notes.txt")["lines"] == 3
    for path in ("src/app.py", "notes.txt"):
        (root / path).unlink()
    (root / "src").rmdir()
    root.rmdir()
    root.mkdir()
    (root / "notes.txt").write_text("new")
    assert files("read_file", path="notes.txt")["content"] == "new"


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        (("write_file", "./a.txt"), ("read_file", "a.txt"), True),
        (("write_file", "src//app.py"), ("grep_files", "src/"), True),
        (("edit_file", "src/../a.txt"), ("read_file", "b.txt"), True),
        (("write_file", "/abs/a.txt"), ("read_file", "b.txt"), True),
        (("write_file", "a.txt"), ("list_files", "."), True),
        (("write_file", "a.txt"), ("read_file", "b.txt"), False),
        (("write_file", "src/a.txt"), ("list_files", "docs"), False),
        (("read_file", "a.txt"), ("read_file", "a.txt"), False),
    ],
)
def test_calls_on_one_path_conflict_however_the_path_is_written(
    one: tuple[str, str], other: tuple[str, str], meets: bool, tmp_path: Path
) -> None:
    """A read must not overtake a conflicting write."""
    scope = Scope(workspace=str(tmp_path))
    tools = {tool.name: tool for tool in workspace_tools()}

    def touched(name: str, path: str) -> TouchedKeys:
        found = TouchedKeys.of({"path": path}, scope, tools[name].reads, tools[name].writes)
        return found if found is not None else TouchedKeys(writes=frozenset({"file:"}))  # undeclared paths are a barrier

    assert conflict(touched(*one), touched(*other)) is meets


def test_a_link_and_its_target_are_one_resource(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    (tmp_path / "link").symlink_to("a.txt")
    read = next(tool for tool in workspace_tools() if tool.name == "read_file")
    assert TouchedKeys.of({"path": "link"}, Scope(workspace=str(tmp_path)), read.reads, None) == TouchedKeys(
        reads=frozenset({"file:a.txt"})
    )


def test_a_glob_reads_the_folder_that_holds_its_matches() -> None:
    glob = next(tool for tool in workspace_tools() if tool.name == "glob_files")
    assert TouchedKeys.of({"pattern": "src/**/*.py"}, Scope(), glob.reads, None) == TouchedKeys(reads=frozenset({"file:src"}))
    assert TouchedKeys.of({"pattern": "*.py"}, Scope(), glob.reads, None) == TouchedKeys(reads=frozenset({"file:"}))


def test_importing_callgate_does_not_import_the_libraries_of_built_in_tools() -> None:
    """Modules such as http and ssl are imported on first use, so that the import of callgate stays fast."""
    code = "import sys, callgate, callgate.builtins; print({'ssl', 'http.client', 'subprocess', 'ctypes'} & set(sys.modules))"
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "set()"
