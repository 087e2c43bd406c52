"""Match a regular expression that a model wrote, in a child process that can be killed.

Python's `re` backtracks: a short pattern can run for years on a short text, and holds the interpreter lock meanwhile, so neither a
thread nor a deadline in this process helps. The child receives text on standard input and returns positions.
"""

from __future__ import annotations

import json
import struct
import sys

from callgate.builtins._tool_failures import CannotDo
from callgate.builtins._worker_process import BUDGET_S, WorkerProcess, WorkerProcessEnded, WorkerProcessLate

__all__ = ["Matcher", "RegexStopped"]

_MAX_PATTERN = 1_000

_CODE = """
import re
try:
    pattern = re.compile(read().decode("utf-8", "surrogatepass"), re.MULTILINE | (re.IGNORECASE if sys.argv[3] == "i" else 0))
except (re.error, RecursionError, OverflowError, MemoryError) as error:
    answer(str(error) or type(error).__name__)
    sys.exit()
answer(None)
while True:
    request = read()
    most, text = struct.unpack(">I", request[:4])[0], request[4:].decode("utf-8", "surrogatepass")
    found = []
    for match in pattern.finditer(text):
        found.append(match.span())
        if len(found) >= most:
            break
    answer(found)
"""


class RegexStopped(CannotDo):
    """The expression exceeded its limit of time or memory. The model must use a simpler one."""

    code = "regex_budget"

    def __init__(self, fact: str) -> None:
        super().__init__(f"{fact} Make it simpler, or search for plain text (without regex).")


class Matcher:
    """One compiled expression. Use it as a context manager, which ends its child process."""

    def __init__(self, pattern: str, *, ignore_case: bool = False, budget_s: float = BUDGET_S) -> None:
        if len(pattern) > _MAX_PATTERN:
            raise CannotDo(f"The regular expression has {len(pattern):,} characters; {_MAX_PATTERN:,} is the limit. Use a shorter one.")
        if not sys.executable:
            raise CannotDo("Regular expressions cannot be used here. Search for plain text (without regex).")
        self._child = WorkerProcess(_CODE, ["i" if ignore_case else "-"], budget_s=budget_s)
        try:
            problem = self._ask(pattern.encode("utf-8", "surrogatepass"))
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
        """End the child process. Idempotent."""
        self._child.close()

    def find(self, text: str, most: int) -> list[tuple[int, int]]:
        """Return the positions of the first `most` matches in `text`, in order. Matches do not overlap.

        Raises:
            RegexStopped: The expression took too much time or memory.
        """
        found = self._ask(struct.pack(">I", most) + text.encode("utf-8", "surrogatepass"))
        return [(int(start), int(end)) for start, end in found] if isinstance(found, list) else []

    def _ask(self, request: bytes) -> object:
        try:
            return json.loads(self._child.ask(request))
        except WorkerProcessEnded as error:
            raise RegexStopped("The regular expression's process ended: it took too much time or memory.") from error
        except WorkerProcessLate as error:
            raise RegexStopped("The regular expression took too long on these files.") from error
