"""`callgate completion SHELL` prints a script with which the shell completes commands, options and their values."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import shell
from tests.waiting import COMMAND_S

COMPLETE = """
. ./completion
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
function=$(complete -p callgate | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" callgate "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does when a person presses Tab."""


@pytest.mark.skipif(shutil.which("bash") is None, reason="has no bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [(("ap",), {"approvals", "approve"}), (("log", "list", "--jo"), {"--journal"}), (("run", "x", "--preset", "ti"), {"tick"})],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_bash_completes_commands_options_and_values(tmp_path: Path, words: tuple[str, ...], completed: set[str]) -> None:
    (tmp_path / "completion").write_text(shell(tmp_path, "completion", "bash").out, encoding="utf-8")
    line = ["bash", "--norc", "-c", COMPLETE, "bash", "callgate", *words]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=COMMAND_S, check=True)
    assert {word.strip() for word in done.stdout.splitlines()} == completed


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(tmp_path: Path, name: str) -> None:
    done = shell(tmp_path, "completion", name)
    assert (done.code, done.err, "approvals" in done.out) == (0, "", True)


def test_an_unknown_shell_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    done = shell(tmp_path, "completion", "tcsh")
    assert (done.code, '"bash", "zsh", "fish"' in done.err) == (2, True)
