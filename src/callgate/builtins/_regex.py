"""Match a regular expression that a model wrote, in a process that can be ended.

Python's `re` backtracks: a short pattern can run for years on a short text, and holds the interpreter lock meanwhile, so neither a
thread nor a deadline in this process helps. The child gets text on its standard input and gives positions back; it opens nothing. It
ends with its budget of processor time even if this process is gone.
"""

from __future__ import annotations

import json
import os
import selectors
import struct
import subprocess
import sys
import time

from callgate.builtins._failures import CannotDo

__all__ = ["Matcher", "RegexStopped"]

BUDGET_S = 10.0
"""Of matching, for all texts of one search together."""
_MEMORY = 536_870_912
_MAX_PATTERN = 1_000

_CHILD = """
import json, re, struct, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]) + 1,) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
except (ImportError, ValueError, OSError):
    pass
given, gives = sys.stdin.buffer, sys.stdout.buffer
def answer(value):
    body = json.dumps(value).encode()
    gives.write(struct.pack(">I", len(body)) + body)
    gives.flush()
def read():
    head = given.read(8)
    if len(head) < 8:
        sys.exit()
    size, most = struct.unpack(">II", head)
    return given.read(size).decode("utf-8", "surrogatepass"), most
text, _ = read()
try:
    pattern = re.compile(text, re.MULTILINE | (re.IGNORECASE if sys.argv[1] == "i" else 0))
except (re.error, RecursionError, OverflowError, MemoryError) as error:
    answer(str(error) or type(error).__name__)
    sys.exit()
answer(None)
while True:
    text, most = read()
    found = []
    for match in pattern.finditer(text):
        found.append(match.span())
        if len(found) >= most:
            break
    answer(found)
"""


_ENVIRONMENT = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}


class RegexStopped(CannotDo):
    """The expression used up its time or its memory."""

    code = "regex_budget"

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact} Make it simpler, or search for plain text (without regex).")


class Matcher:
    """One compiled expression. A context manager: the process ends with the block."""

    def __init__(self, pattern: str, *, ignore_case: bool = False, budget_s: float = BUDGET_S) -> None:
        if len(pattern) > _MAX_PATTERN:
            raise CannotDo(f"The regular expression has {len(pattern):,} characters; {_MAX_PATTERN:,} is the limit. Use a shorter one.")
        if not sys.executable:
            raise CannotDo("Regular expressions cannot be used here. Search for plain text (without regex).")
        self._left_s = budget_s
        command = [sys.executable, "-I", "-S", "-c", _CHILD, "i" if ignore_case else "-", str(int(budget_s)), str(_MEMORY)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_ENVIRONMENT, bufsize=0
        )
        try:
            problem = self._ask(pattern, 0)
        except BaseException:
            self.close()
            raise
        if problem is not None:
            self.close()
            raise CannotDo(f"The regular expression is not valid: {problem}. Correct it, or search for plain text (without regex).")

    def __enter__(self) -> Matcher:
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

    def find(self, text: str, most: int) -> list[tuple[int, int]]:
        """Where the expression matches in `text`, in order, not overlapping.

        Raises:
            RegexStopped: The time of this search is used up.
        """
        found = self._ask(text, most)
        return [(int(start), int(end)) for start, end in found] if isinstance(found, list) else []

    def _ask(self, text: str, most: int) -> object:
        body = text.encode("utf-8", "surrogatepass")
        started = time.monotonic()
        try:
            self._send(struct.pack(">II", len(body), most) + body)
            (size,) = struct.unpack(">I", self._receive(4, started))
            return json.loads(self._receive(size, started))
        except (BrokenPipeError, EOFError) as error:
            raise RegexStopped("The regular expression's process ended: it took too much time or memory.") from error
        finally:
            self._left_s -= time.monotonic() - started

    def _send(self, data: bytes) -> None:
        # The child reads a whole text before it matches, so this cannot wait for an expression.
        assert self._process.stdin is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._process.stdin.fileno(), rest) :]

    def _receive(self, size: int, started: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        data = b""
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(max(0.0, self._left_s - (time.monotonic() - started))):
                    raise RegexStopped("The regular expression took too long on these files.")
                piece = os.read(fd, size - len(data))
                if not piece:
                    raise EOFError
                data += piece
        return data
