"""How much a worker process may take, and how much of the engine's environment it sees."""

from __future__ import annotations

import os
from collections.abc import Mapping

from callgate._options import Count, Options, Pause

__all__ = ["ProcessLimits", "worker_environment"]

_PASSED = frozenset({"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})
_LEAST_FILES = 256


class ProcessLimits(Options, frozen=True, kw_only=True):
    """Bounds of the process runner. Those of memory, files and time hold for a worker and for each process that its tool starts."""

    memory_bytes: Count = 2_147_483_648
    """Address space. A tool that asks for more gets a MemoryError."""
    file_bytes: Count = 1_073_741_824
    """The largest file a tool may write."""
    open_files: Count = 1_024
    cpu_s: Count | None = None
    """Processor time of one call; None: only the deadline bounds it."""
    workers: Count = 16
    """Calls that run at once; others wait, which counts against their deadline."""
    idle_s: Pause = 60.0
    """A worker that nobody needs ends after this."""
    environment: tuple[str, ...] = ()
    """Names of further environment variables that tools may see. What is not named here or harmless never reaches them."""

    def resources(self) -> str:
        """For the supervisor: `NUMBER=VALUE,...`."""
        import resource  # not on every system that imports this module

        pairs = {
            resource.RLIMIT_AS: self.memory_bytes,
            resource.RLIMIT_FSIZE: self.file_bytes,
            resource.RLIMIT_NOFILE: max(_LEAST_FILES, self.open_files),
            resource.RLIMIT_CORE: 0,
        }
        return ",".join(f"{number}={value}" for number, value in pairs.items())


def worker_environment(limits: ProcessLimits, marker: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a worker. `marker` names it, so that what it starts can be recognised."""
    names = _PASSED | set(limits.environment)
    passed = {name: value for name, value in environ.items() if name in names or name.startswith("LC_")}
    return passed | {"CALLGATE_WORKER": marker}
