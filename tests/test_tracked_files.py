"""`make check` refuses files that do not belong in the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import COMMAND_S

TOOL = Path(__file__).parents[1] / "tools" / "check_tracked_files.py"
ARCHITECTURE = """# Architecture

A `word` before the table.

## The repository

| entry | what it is |
|---|---|
| `ARCHITECTURE.md` | this page, with `code` in its row |
| `src/` | the package |

## Layers

| package |
|---|
| `elsewhere` |
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "ARCHITECTURE.md").write_text(ARCHITECTURE, encoding="utf-8")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "module.py").touch()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "-A")
    return tmp_path


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True, timeout=COMMAND_S)


def checked(root: Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, TOOL], cwd=root, capture_output=True, text=True, timeout=COMMAND_S)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_a_repository_with_only_documented_entries_passes(repository: Path) -> None:
    assert checked(repository) == (0, [])


@pytest.mark.parametrize("entry", ["notes.md", ".notes", "elsewhere/notes.md"])
@pytest.mark.parametrize("tracked", [True, False], ids=["tracked", "not tracked yet"])
def test_an_undocumented_top_level_entry_is_refused(repository: Path, entry: str, tracked: bool) -> None:
    (repository / entry).parent.mkdir(exist_ok=True)
    (repository / entry).touch()
    if tracked:
        git(repository, "add", "-A")
    code, lines = checked(repository)
    assert code == 1
    assert [line.split(" ")[0] for line in lines] == [entry.split("/")[0]]


def test_a_git_ignored_entry_is_not_checked(repository: Path) -> None:
    (repository / "src" / ".gitignore").write_text("*.log\n", encoding="utf-8")
    (repository / ".git" / "info" / "exclude").write_text("/notes.md\n", encoding="utf-8")
    (repository / "notes.md").touch()
    assert checked(repository) == (0, [])


def test_a_documented_entry_that_does_not_exist_is_refused(repository: Path) -> None:
    (repository / "src" / "module.py").unlink()
    code, (line,) = checked(repository)
    assert code == 1
    assert "names the top-level entry src, which does not exist" in line


def test_a_large_file_is_refused_with_its_size(repository: Path) -> None:
    (repository / "src" / "data.bin").write_bytes(b"x" * (512 * 1024 + 1))
    code, (line,) = checked(repository)
    assert code == 1
    assert line.startswith("src/data.bin has 524,289 bytes; the limit for a file is 524,288.")
