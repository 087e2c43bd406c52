"""`callgate tools`: the tools that a model could call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import environment, shell
from tests.waiting import COMMAND_S


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("crm.py", ["refund", "odd_text", "broken", "wait"]),
        ("crm.py:refund", ["refund"]),
        ("crm.py:both", ["refund", "odd_text"]),
        ("crm", ["refund", "odd_text", "broken", "wait"]),
        ("crm:both", ["refund", "odd_text"]),
    ],
)
def test_tools_are_loaded_from_a_file_a_module_or_a_name_in_it(folder: Path, spec: str, names: list[str]) -> None:
    listed = shell(folder, "tools", "list", "--tools", spec, "--json").json
    assert [tool["name"] for tool in listed] == names


def test_repeated_tools_options_are_combined(folder: Path) -> None:
    done = shell(folder, "tools", "list", "--tools", "builtin", "--tools", "crm.py:refund")
    assert done.code == 0
    for words in ("read_file", "run_command", "search_result", "refund", "process", "dangerous"):
        assert words in done.out


def test_tools_show_prints_the_schema_that_a_model_receives(folder: Path) -> None:
    assert '"description": "Which order."' in shell(folder, "tools", "show", "refund", "--tools", "crm.py").out
    shown = shell(folder, "tools", "show", "refund", "--tools", "crm.py", "--json").json
    assert shown["effect"] == "once"
    assert shown["openai"]["function"]["parameters"]["required"] == ["order", "cents"]


def test_an_unknown_tool_name_is_refused_with_the_known_names(folder: Path) -> None:
    done = shell(folder, "tools", "show", "refnd", "--tools", "crm.py")
    assert done.code == 2
    assert "The tools are: refund, odd_text, broken, wait" in done.err


@pytest.mark.parametrize("words", [(), ("call",), ("tools", "list"), ("log", "show"), ("doctor",), ("demo",)], ids=" ".join)
def test_help_shows_an_example_and_the_exit_codes(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = shell(tmp_path, *words, "--help")
    assert done.code == 0
    assert " ".join(("callgate", *words)) in done.out
    assert "130 interrupted" in " ".join(done.out.split())


@pytest.mark.parametrize("module", ["callgate", "callgate.cli"])
def test_the_package_is_a_program(folder: Path, module: str) -> None:
    words = [sys.executable, "-m", module, "tools", "show", "refnd", "--tools", "crm.py"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, env=environment())
    assert done.returncode == 2
    assert "The tools are: refund" in done.stderr


def test_missing_cli_packages_are_reported_with_the_install_command() -> None:
    """Site packages are disabled, so only Python's standard library is available."""
    code = "import os, sys; sys.path.insert(0, os.environ['PYTHONPATH']); from callgate.cli import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, timeout=COMMAND_S, env=environment())
    assert done.returncode == 2
    assert done.stderr == "The command line needs cyclopts and rich. Install them with: python -m pip install 'callgate[cli]'\n"


def test_importing_callgate_does_not_import_the_command_line() -> None:
    code = "import callgate, sys; print([name for name in ('rich', 'cyclopts', 'callgate.demo', 'callgate.cli') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=COMMAND_S, env=environment())
    assert done.stdout == "[]\n"
