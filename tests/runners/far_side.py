"""The example's far side, as a process on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from examples.remote_runner.near import RemoteRunner

from tests.waiting import PATIENCE_S

__all__ = ["TOKEN", "Far"]

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-tests-only"
SERVED = ("tests.runners.fixture_tools", "tests.runners.hostile_tools", "tests.runners.remote_tools")


class Far:
    """A far side that listens while its `with` block runs."""

    def __enter__(self) -> Self:
        command = [sys.executable, str(ROOT / "examples/remote_runner/far.py"), "0", *SERVED]
        environ = os.environ | {"REMOTE_TOKEN": TOKEN, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:"), line
        self.port = int(line.rpartition(":")[2])
        return self

    def runner(self, token: str = TOKEN) -> RemoteRunner:
        """Return a near side with timeouts for a busy machine."""
        return RemoteRunner("127.0.0.1", self.port, token, connect_s=PATIENCE_S, answer_s=PATIENCE_S)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
