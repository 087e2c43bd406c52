"""Tests of `run_command`: it returns a command's output and exit code, and never waits for background processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from callgate.builtins.command import run_command
from tests.builtins.fakes import Shown, context
from tests.waiting import PATIENCE_S


def run(root: Path | str, command: str | list[str], *, shown: Shown | None = None, **more: Any) -> Any:
    return run_command.invoke(context(root, shown=shown), {"command": command, **more})


def test_a_failing_command_is_a_result(tmp_path: Path) -> None:
    """E13: a command that exits with an error is a domain outcome, not a failure of the call."""
    done = run(tmp_path, "echo out; echo err >&2; exit 3")
    assert (done["exit_code"], done["stdout"], done["stderr"], done["truncated"]) == (3, "out\n", "err\n", False)


def test_a_list_of_words_is_run_without_a_shell(tmp_path: Path) -> None:
    assert run(tmp_path, ["printf", "%s", "$HOME;*"])["stdout"] == "$HOME;*"


def test_cwd_must_be_a_folder_inside_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "root/sub").mkdir(parents=True)
    (tmp_path / "root/out").symlink_to("..")
    assert run(tmp_path / "root", "pwd -P", cwd="sub")["stdout"] == f"{(tmp_path / 'root/sub').resolve()}\n"
    for outside in ("..", "out", "/", "absent"):
        refused = run(tmp_path / "root", "echo ran", cwd=outside)
        assert refused["success"] is False
        assert "stdout" not in refused


def test_stdout_and_stderr_are_reported_by_lines(tmp_path: Path) -> None:
    shown: Shown = []
    run(tmp_path, "echo one; echo two >&2; printf three", shown=shown)
    assert "".join(text for stream, text in shown if stream == "stdout") == "one\nthree"
    assert ("stderr", "two\n") in shown


def test_stdin_larger_than_a_pipe_is_written_while_output_is_read(tmp_path: Path) -> None:
    text = "x" * 300_000 + "\n"
    assert run(tmp_path, "cat", stdin=text)["stdout"] == text
    assert run(tmp_path, "exec true", stdin=text)["exit_code"] == 0


def test_without_stdin_a_command_reads_end_of_file(tmp_path: Path) -> None:
    assert run(tmp_path, "cat")["stdout"] == ""


def test_a_background_process_that_holds_the_pipes_is_not_waited_for(tmp_path: Path) -> None:
    """A grandchild holds the pipe open, so waiting for the end of the output would hang."""
    done = run(tmp_path, ["sh", "-c", "setsid sleep 600 & echo $!; echo started"], timeout_s=PATIENCE_S)
    pid = int(done["stdout"].split()[0])
    os.kill(pid, signal.SIGKILL)  # still running: the runner ends processes that left the group
    assert done["exit_code"] == 0
    assert done["stdout"].endswith("started\n")
    assert not done.get("timed_out")


def test_a_command_that_times_out_is_killed_with_its_group_and_keeps_its_output(tmp_path: Path) -> None:
    for timeout_s in (0.3, 3.0, PATIENCE_S):
        done = run(tmp_path, "trap '' TERM; sleep 600 & echo $!; wait; wait; while :; do sleep 1; done", timeout_s=timeout_s)
        if done["stdout"]:  # empty if the timeout passed before the command began
            break
    assert (done["exit_code"], done["timed_out"]) == (None, True)
    assert _ended(int(done["stdout"]))


def _ended(pid: int) -> bool:
    """Return whether the process is gone or a zombie; a killed process takes a moment to end."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        os.sched_yield()
    return False


def test_the_result_names_the_signal_that_ended_the_command(tmp_path: Path) -> None:
    done = run(tmp_path, "kill -SEGV $$")
    assert (done["exit_code"], done["signal"]) == (-signal.SIGSEGV, "SIGSEGV")


def test_large_output_is_truncated_to_its_head_and_tail(tmp_path: Path) -> None:
    done = run(tmp_path, "echo first; head -c 6000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert done["truncated"] is True
    assert done["stdout"].startswith("first\nxxx")
    assert done["stdout"].endswith("xxx\nlast\n")
    assert "bytes left out" in done["stdout"]
    assert len(done["stdout"]) < 4_300_000


def test_output_that_is_not_utf8_is_returned_as_encodable_text(tmp_path: Path) -> None:
    run(tmp_path, "printf '\\377\\n'")["stdout"].encode()


@pytest.mark.parametrize(
    ("command", "words"),
    [(["no-such-program-x"], "no program"), ("", "empty"), ([], "empty"), (["echo", "a\0b"], "NUL"), (["/"], "may not be run")],
)
def test_a_command_that_cannot_start_is_refused_with_the_reason(tmp_path: Path, command: str | list[str], words: str) -> None:
    refused = run(tmp_path, command)
    assert refused["success"] is False
    assert words in refused["error"]


def test_a_command_without_a_workspace_is_refused() -> None:
    assert "no workspace" in run("", "echo ran")["error"]
