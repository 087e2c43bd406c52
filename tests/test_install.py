"""`make demo` and `make test` print what they install while pip runs, and fail if pip fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import COMMAND_S

TOOL = Path(__file__).parents[1] / "tools" / "install.py"
PIP = """#!/bin/sh
echo 'Looking in indexes: somewhere'
echo 'Collecting msgspec>=0.21 (from callgate==0.1.0)'
echo 'Processing /some/folder/rich_rst-2.2.0-py3-none-any.whl'
read proceed < "$(dirname "$0")/proceed"
echo 'Installing collected packages: msgspec, rich-rst, callgate'
exit {code}
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment whose pip pauses until it reads a line from the pipe `bin/proceed`."""
    (tmp_path / "bin").mkdir()
    subprocess.run(["mkfifo", tmp_path / "bin" / "proceed"], check=True, timeout=COMMAND_S)
    return tmp_path


def installing(environment: Path, code: int) -> subprocess.Popen[str]:
    python = environment / "bin" / "python"
    python.write_text(PIP.replace("{code}", str(code)), encoding="utf-8")
    python.chmod(0o755)
    return subprocess.Popen([sys.executable, TOOL, environment, "cli"], stdout=subprocess.PIPE, text=True, bufsize=1)


def test_package_names_are_printed_while_pip_is_still_running(environment: Path) -> None:
    with installing(environment, 0) as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline().startswith(f"Installing callgate[cli] into {environment}")
        assert [tool.stdout.readline(), tool.stdout.readline()] == ["  finding msgspec\n", "  finding rich_rst\n"]
        (environment / "bin" / "proceed").write_text("\n", encoding="utf-8")
        assert tool.stdout.read() == "  installing 3 packages\nInstalled.\n"
    assert tool.returncode == 0


def test_a_failed_pip_makes_the_installation_exit_with_the_same_code(environment: Path) -> None:
    with installing(environment, 3) as tool:
        (environment / "bin" / "proceed").write_text("\n", encoding="utf-8")
        told, _ = tool.communicate(timeout=COMMAND_S)
    assert told.endswith("Not installed: pip ended with exit code 3.\n")
    assert tool.returncode == 3
