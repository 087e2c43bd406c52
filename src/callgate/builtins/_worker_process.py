"""Run work in a child process that is killed at its limits, because the work could not be stopped in this process.

Examples are a model's regular expression and source code of unknown origin: both may never finish or take unbounded
memory. The child reads requests and writes responses as bytes. It runs only the standard library unless its code
imports more, and has no environment and no other open files. The system enforces its limits of processor time and
memory, even if this process ends first.
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
"""Time limit in seconds for all requests of one call together."""
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
    """A child process. Use it as a context manager, which ends the process.

    Args:
        code: The Python program to run. It calls `read()` for the next request and `answer(value)` to send a response
            as JSON.
        words: Arguments of the program, which it finds in `sys.argv[3:]`.
        budget_s: Time limit in seconds for all requests together.

    Raises:
        OSError: The process cannot be started.
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
            most_s: Time limit of this request in seconds, if it is less than the remaining time.

        Raises:
            WorkerProcessEnded: The process ended, or did not respond within `most_s`.
            WorkerProcessLate: The process did not respond within the remaining time.
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
