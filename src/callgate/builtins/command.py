"""`run_command`: run one command in the workspace, show its output live, and return how it ended.

Uses the process runner, so that a kill or a deadline ends the command and every process that it started. The tool has
the category `dangerous` and the effect `once`, because a command can do anything that its process can. It declares no
resources, so no other call runs in parallel with it. The workspace determines where the command starts, not what it can
reach. Policy rules decide which commands may run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from callgate._workspace import Workspace
from callgate.builtins._run_program import ProgramRun
from callgate.builtins._tool_failures import CannotDo, Result, failures_as_results
from callgate.tools import ToolContext, tool

__all__ = ["run_command"]

_MAX_TIMEOUT_S = 3_600.0


@tool(category="dangerous", effect="once", runner="process")
@failures_as_results
def run_command(
    context: ToolContext, command: str | list[str], cwd: str = ".", timeout_s: float = 120.0, stdin: str | None = None
) -> Result:
    """Run a command and return its exit code and output.

    An exit code other than 0 is a result, not an error of this tool.

    Args:
        command: A program and its arguments as a list (preferred: nothing is expanded), or one line for `sh -c`.
        cwd: The folder to start in, relative to the workspace.
        timeout_s: End the command after this many seconds; at most 3600.
        stdin: The text that the command reads from standard input. Default: empty.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else [str(part) for part in command]
    if not argv or not argv[-1].strip() or any("\0" in part for part in argv):
        raise CannotDo("`command` is empty or holds a NUL. Give a program and its arguments, or one line for the shell.")
    if not context.workspace:
        raise CannotDo("This run has no workspace, so there is no folder to run a command in. Go on without, or say that one is needed.")
    limit_s = min(max(timeout_s, 0.1), _MAX_TIMEOUT_S)
    with Workspace(context.workspace) as workspace, workspace.folder(cwd) as folder:
        process = _start(argv, workspace, cwd, folder, with_input=stdin is not None)
    pump = ProgramRun(
        process, stdin=(stdin or "").encode("utf-8", "replace"), show=lambda text, stream: context.progress(text, stream=stream)
    )
    done = pump.run(limit_s)
    result: Result = {"exit_code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}
    result |= {"duration_ms": round(done.seconds * 1000), "truncated": done.left_out > 0}
    if done.exit_code is None:
        note = f"The command was ended after {limit_s:g} s; it may have done part of its work."
        result |= {"timed_out": True, "timeout_s": limit_s, "note": note}
    elif done.exit_code < 0:
        result["signal"] = _signal_name(-done.exit_code)
    return result


def _start(argv: list[str], workspace: Workspace, cwd: str, folder: int, *, with_input: bool) -> subprocess.Popen[bytes]:
    # Start by descriptor, so that the checked folder is the one that is used; only Linux has paths for folder descriptors.
    place = f"/proc/self/fd/{folder}" if sys.platform.startswith("linux") else os.path.join(workspace.root, workspace.normalise(cwd))
    try:
        return subprocess.Popen(
            argv,
            cwd=place,
            stdin=subprocess.PIPE if with_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
    except FileNotFoundError as error:
        raise CannotDo(f"There is no program {argv[0][:200]!r} here. Check its name, or use another one.") from error
    except PermissionError as error:
        raise CannotDo(f"{argv[0][:200]!r} may not be run: it is not a program, or the operating system refused it.") from error
    except (OSError, UnicodeEncodeError) as error:
        raise CannotDo(f"The command could not be started: {type(error).__name__}. Shorten it or use other characters.") from error


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
