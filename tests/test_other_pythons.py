"""The suite runs on every Python that is installed: which ones are found, which are left out and why, and what fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

TOOL = Path(__file__).parents[1] / "tools/other_pythons.py"
SAYS = 'if [ "$1" = -c ]; then echo "cpython 3 {minor} 3.{minor}.0"; exit 0; fi\n'
MAKES = """
/bin/mkdir -p "$4/bin" "$4/cache/v/cache"
echo '{"tests/test_a.py::test_b": true}' > "$4/cache/v/cache/lastfailed"
printf '%s\\n' '#!/bin/sh' '[ "$2" = pip ] && exit {pip}' '[ "$4" = 0 ] && exit {again}' 'exit {suite}' > "$4/bin/python"
/bin/chmod +x "$4/bin/python"
"""
OWN = sys.version_info[1]
OTHER, ANOTHER = OWN + 20, OWN + 21


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def command(path: Path, minor: int, script: str, *, name: str = "") -> None:
    file = path / (name or f"python3.{minor}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n" + script.replace("{minor}", str(minor)))
    file.chmod(0o755)


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(path), "PYENV_ROOT": str(path.parent / "pyenv")}
    told = [sys.executable, str(TOOL), *arguments]
    return subprocess.run(told, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


def test_each_working_python_is_listed_once_and_each_broken_one_is_named(path: Path) -> None:
    command(path, OTHER, SAYS)
    command(path, ANOTHER, "exit 127\n")
    command(path, OWN, SAYS)
    command(path, 10, SAYS)
    command(path, OTHER, SAYS, name=f"../pyenv/versions/3.{OTHER}.9/bin/python")
    told = run(path, "--list")
    assert told.returncode == 0
    assert told.stdout.count(f"3.{OTHER} (") == 1
    assert f"{path}/python3.{OTHER})" in told.stdout
    assert f"Left out: {path}/python3.{ANOTHER} (it does not start)." in told.stdout
    assert "3.10" not in told.stdout


def test_a_broken_shim_is_ignored_if_its_version_is_found_elsewhere(path: Path) -> None:
    command(path, OTHER, "exit 127\n")
    command(path, OTHER, SAYS, name=f"../pyenv/versions/3.{OTHER}.9/bin/python")
    told = run(path, "--list")
    assert f"3.{OTHER} (" in told.stdout
    assert f"python3.{OTHER} (it does not start)" not in told.stdout


@pytest.mark.parametrize(
    ("pip", "suite", "again", "code", "says"),
    [
        (0, 0, 0, 0, "every test passed"),
        (0, 1, 1, 1, "failed: pytest ended with 1"),
        (0, 1, 0, 0, "UNSTABLE: failed, and passed alone: tests/test_a.py::test_b"),
        (0, 3, 0, 1, "failed: pytest ended with 3"),
        (1, 0, 0, 0, "left out, because its environment could not be made (exit code 1)"),
    ],
    ids=["passes", "fails twice", "fails once", "breaks off", "cannot be installed for"],
)
def test_a_failing_suite_fails_the_command_but_a_failed_installation_does_not(
    pip: int, suite: int, again: int, code: int, says: str, path: Path
) -> None:
    made = MAKES.replace("{pip}", str(pip)).replace("{suite}", str(suite)).replace("{again}", str(again))
    command(path, OTHER, SAYS + made)
    told = run(path)
    assert f"Python 3.{OTHER}: {says}." in told.stdout
    others = [line for line in told.stdout.splitlines() if line.startswith("Python 3.") and f"3.{OTHER}:" not in line]
    assert (told.returncode, others) == (code, [])


def test_a_sample_is_told_to_be_one(path: Path) -> None:
    """The interpreter that ran the tests was given the time that the sample has."""
    ends = '"$([ "$8" = --minutes=6 ] && echo 0 || echo 3)"'
    command(path, OTHER, SAYS + MAKES.replace("{pip}", "0").replace("{suite}", ends).replace("{again}", "0"))
    told = run(path, "--minutes", "6")
    assert f"Python 3.{OTHER}: every test that began within 6 minutes passed." in told.stdout
    assert told.returncode == 0
