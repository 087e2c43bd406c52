"""Resource limits of worker processes, and the environment variables that they receive."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from callgate._option_checks import Count, Options, Pause

__all__ = ["ProcessLimits", "withheld_variable", "worker_environment"]

_PASSED = frozenset({"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})
_LEAST_FILES = 256
_MISSING_KEY = re.compile(r"KeyError: '(\w+)'|the key '(\w+)' was not found")


class ProcessLimits(Options, frozen=True, kw_only=True):
    """Limits of the process runner. Memory, file size and processor time apply to a worker and to each process that it starts."""

    memory_bytes: Count = 2_147_483_648
    """Address space. A tool that asks for more gets a MemoryError."""
    file_bytes: Count = 1_073_741_824
    """The largest file that a tool may write."""
    open_files: Count = 1_024
    cpu_s: Count | None = None
    """Processor time of one call; None: only the deadline limits it."""
    workers: Count = 16
    """Calls that run at the same time; others wait, which counts against their deadline."""
    idle_s: Pause = 60.0
    """An idle worker ends after this time."""
    environment: tuple[str, ...] = ()
    """Names of additional environment variables that tools may see. All others are withheld, except harmless ones."""

    def resources(self) -> str:
        """The limits in the supervisor's format: `NUMBER=VALUE,...`."""
        import resource  # not available on every system that imports this module

        pairs = {
            resource.RLIMIT_AS: self.memory_bytes,
            resource.RLIMIT_FSIZE: self.file_bytes,
            resource.RLIMIT_NOFILE: max(_LEAST_FILES, self.open_files),
            resource.RLIMIT_CORE: 0,
        }
        return ",".join(f"{number}={value}" for number, value in pairs.items())


def worker_environment(limits: ProcessLimits, marker: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a worker. `marker` identifies the worker and the processes that it starts."""
    names = _PASSED | set(limits.environment)
    passed = {name: value for name, value in environ.items() if name in names or name.startswith("LC_")}
    return passed | {"CALLGATE_WORKER": marker}


def withheld_variable(texts: Iterable[str], limits: ProcessLimits) -> str:
    """Return the first environment variable that this process has, that workers do not get, and whose absence a failure names.

    Args:
        texts: The failure's traceback and message.
    """
    passed = worker_environment(limits, "")
    named = (found[1] or found[2] for text in texts for found in _MISSING_KEY.finditer(text))
    return next((name for name in named if name in os.environ and name not in passed), "")
