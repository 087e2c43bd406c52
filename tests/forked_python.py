"""Run Python programs in processes that are forked from one with callgate imported.

Most of such a process's time would be the start of Python and its imports. Tests of what an import or the end of a program does start
Python itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from tests.cli.shell import Ended, forks
from tests.waiting import COMMAND_S

__all__ = ["ChildProcess", "ForkedProcess", "child_process", "python"]

ROOT = Path(__file__).parents[1]


class ForkedProcess:
    """A program in a forked process, used as a `subprocess.Popen` with pipes for its input and its output is.

    Args:
        program: `callgate`, `python -m` or `python -c`.
        words: Its arguments, from the module or the code on.
        environ: Its environment. Default: that of this process.
        stderr: The file descriptor of its standard error; None: its output.
    """

    def __init__(
        self, program: str, words: Sequence[str], folder: Path = ROOT, environ: Mapping[str, str] | None = None, stderr: int | None = 2
    ) -> None:
        (theirs, ours), (reads, writes) = os.pipe(), os.pipe()
        streams = (theirs, writes, writes if stderr is None else stderr)
        self._forked = forks().start(words, folder, dict(os.environ) if environ is None else environ, streams, program)
        os.close(theirs)
        os.close(writes)
        self.pid = self._forked.pid
        self.stdin: TextIO = os.fdopen(ours, "w")
        self.stdout: TextIO = os.fdopen(reads)
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._forked.tells.settimeout(COMMAND_S if timeout is None else timeout)
            self.returncode = int(self._forked.tells.recv(16))
        return self.returncode

    def communicate(self, input: str = "", timeout: float | None = None) -> tuple[str, None]:
        """Write the input and close it; return all output once the process has ended."""
        with suppress(BrokenPipeError):
            self.stdin.write(input)
            self.stdin.close()
        out = self.stdout.read()
        self.wait(timeout)
        return out, None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and nobody has waited for it
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End the process, if it has not ended."""
        self.kill()
        self.wait()
        self._forked.tells.close()
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()


ChildProcess = subprocess.Popen[str] | ForkedProcess


@contextmanager
def child_process(module: str, *words: str) -> Iterator[ChildProcess]:
    """Run `main(words)` of a module in another process, which is killed when the block ends."""
    code = f"import sys; from {module} import main; main(sys.argv[1:])"
    if sys.platform != "linux":
        command = [sys.executable, "-c", code, *words]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            try:
                yield other
            finally:
                other.kill()
        return
    process = ForkedProcess("python -c", [code, *words])
    try:
        yield process
    finally:
        process.close()


def python(code: str, *words: str, folder: Path = ROOT) -> Ended:
    """Run code to its end, with these words as its arguments."""
    if sys.platform != "linux":
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        return Ended(done.returncode, done.stdout, done.stderr)
    return Ended(*forks().run([code, *words], folder, dict(os.environ), "", COMMAND_S, "python -c"))
