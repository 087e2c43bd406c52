"""The program that runs the tests: a few that fail run once more, alone, and what is broken fails the whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import COMMAND_S

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
"""Without the other plugins, which take most of the time in which pytest starts."""
PASSES = "def test_a(): pass\n"
FAILS = "def test_a(): assert False\n"
PASSES_ALONE = """
from pathlib import Path

def test_b():
    before = Path("ran").exists()
    Path("ran").touch()
    assert before
"""
SIX_PASS_ALONE = f"import pytest\n{PASSES_ALONE}".replace(
    "def test_b():", '@pytest.mark.parametrize("n", range(6))\ndef test_b(n):'
).replace('Path("ran")', 'Path(f"ran{n}")')


@pytest.mark.parametrize(
    ("tests", "code", "said"),
    [
        (PASSES, 0, ""),
        (FAILS, 1, "The tests: failed: pytest ended with 1"),
        (PASSES + PASSES_ALONE, 0, "The tests: UNSTABLE: failed, and passed alone: tests/test_one.py::test_b"),
        (FAILS + PASSES_ALONE, 1, "The tests: failed: pytest ended with 1"),
        (SIX_PASS_ALONE, 1, "The tests: failed: pytest ended with 1"),
        ("def test_a(:\n", 1, "The tests: failed: pytest ended with"),
    ],
    ids=["all pass", "one fails", "one is unstable", "one of each", "many are unstable", "cannot be read"],
)
def test_a_broken_test_fails_the_whole_and_an_unstable_one_is_told(tmp_path: Path, tests: str, code: int, said: str) -> None:
    for name in ("tools", "tests"):
        (tmp_path / name).mkdir()
    shutil.copy(ROOT / "tools/run_tests.py", tmp_path / "tools")
    (tmp_path / "tests/test_one.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "tools/run_tests.py", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == code, done
    assert said in done.stdout
    assert said or "UNSTABLE" not in done.stdout


@pytest.mark.parametrize(("minutes", "did"), [("0", "skipped"), ("60", "passed")])
def test_what_has_not_begun_when_the_minutes_are_over_is_skipped(tmp_path: Path, minutes: str, did: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "1",
        "-o",
        f"cache_dir={tmp_path}",
        f"--minutes={minutes}",
        "tests/test_tracked_files.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_S)
    assert done.returncode == 0, done
    assert re.search(rf"=+ \d+ {did} in ", done.stdout), done.stdout
    assert ("when the 0 minutes of this run were over" in done.stdout) == (did == "skipped")
