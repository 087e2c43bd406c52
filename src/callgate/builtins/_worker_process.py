"""Run work that cannot be stopped in this process in a child process: a request in bytes, a response in bytes, killed at its limits.

The child runs only the standard library unless its code names more to import. It has no environment and no other open files, and its
limits of processor time and memory hold even if this process is gone. For work that may never finish or take unbounded memory: a model's
regular expression, source code of unknown origin.
"""

from __future__ import annotations

import math
import os
import selectors
import struct
import subprocess
import sys
import time
from collections.abc import Sequence

__all__ = ["BUDGET_S", "WorkerProcess", "WorkerProcessEnded", "WorkerProcessLate"]

BUDGET_S = 10.0
"""Seconds of work for all requests of one call together."""
_MEMORY = 536_870_912
_SETUP = """
import json, struct, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]) + 1,) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
except (ImportError, ValueError, OSError):
    pass
given, gives = sys.stdin.buffer, sys.stdout.buffer
def answer(value):
    body = json.dumps(value).encode()
    gives.write(struct.pack(">I", len(body)) + body)
    gives.flush()
def read():
    head = given.read(4)
    if len(head) < 4:
        sys.exit()
    return given.read(struct.unpack(">I", head)[0])
"""
_ENVIRONMENT = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}


class WorkerProcessEnded(Exception):
    """The process ended because it took too much memory or processor time."""


class WorkerProcessLate(Exception):
    """The time for all requests is used up."""


class WorkerProcess:
    """A child process. A context manager: it ends with the block.

    Args:
        code: The program; `read()` returns the next request and `answer(value)` sends a response as JSON.
        words: Available to it as `sys.argv[3:]`.
        budget_s: Seconds for all requests together.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, code: str, words: Sequence[str] = (), *, budget_s: float = BUDGET_S) -> None:
        self.left_s = budget_s
        command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _SETUP + code, str(max(1, int(budget_s))), str(_MEMORY), *words]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_ENVIRONMENT, bufsize=0
        )

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process. Idempotent."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def ask(self, request: bytes, *, most_s: float = math.inf) -> bytes:
        """Send a request and return its response.

        Args:
            most_s: Limit of this request, if less than the time that is left.

        Raises:
            WorkerProcessEnded: There is no response, or none within `most_s`.
            WorkerProcessLate: There is no response within the time that is left.
        """
        started = time.monotonic()
        try:
            self._send(struct.pack(">I", len(request)) + request)
            (size,) = struct.unpack(">I", self._receive(4, started + min(most_s, self.left_s)))
            return self._receive(size, started + min(most_s, self.left_s))
        except TimeoutError as error:
            raise (WorkerProcessEnded if most_s < self.left_s else WorkerProcessLate) from error
        except BrokenPipeError as error:
            raise WorkerProcessEnded from error
        finally:
            self.left_s -= time.monotonic() - started

    def _send(self, data: bytes) -> None:
        # The child reads a whole request before it works, so this cannot block on its work.
        assert self._process.stdin is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._process.stdin.fileno(), rest) :]

    def _receive(self, size: int, until: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        data = b""
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                piece = os.read(fd, size - len(data))
                if not piece:
                    raise WorkerProcessEnded
                data += piece
        return data
