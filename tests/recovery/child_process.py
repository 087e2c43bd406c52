"""Start a test module's `main` in a process of its own, which a test stops or kills."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

__all__ = ["child_process"]


@contextmanager
def child_process(module: str, *words: str) -> Iterator[Popen[str]]:
    """Run `main(words)` of a module in a new process, which is killed when the block ends."""
    count = len(words) + 1
    code = f"import sys; sys.path[:] = sys.argv[{count}:]; from {module} import main; main(sys.argv[1:{count}])"
    with Popen([sys.executable, "-c", code, *words, *sys.path], stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
