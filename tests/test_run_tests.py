"""The program that runs the tests: a few that fail run once more, alone, and what is broken fails the whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).parents[1] / "tools/run_tests.py"
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
    shutil.copy(PROGRAM, tmp_path / "tools")
    (tmp_path / "tests/test_one.py").write_text(tests, encoding="utf-8")
    done = subprocess.run([sys.executable, "tools/run_tests.py", "2"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done
    assert said in done.stdout
    assert said or "UNSTABLE" not in done.stdout
