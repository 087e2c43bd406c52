"""What a call changed in its worker: put right what can be, and say what cannot.

A warm worker serves calls of several tools, so a call must not meet what an earlier one left. Restored after each call: working
directory, environment, import path, umask, recursion limit, signal handlers, timers. Reasons to replace the worker: threads still
running, standard descriptors closed or redirected, more than a few files left open, lower limits, memory that ran out. What a tool changes
in loaded modules (its own globals, a patched library) stays until the worker goes; the engine is never affected.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time

__all__ = ["Baseline"]

_SPARE_FILES = 16
"""Files a call may leave open: connections that a tool keeps for the next call."""
_SETTLE_S = 0.05
_WATCHED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE)
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)


class Baseline:
    """The worker's state before a call."""

    def __init__(self) -> None:
        self._cwd = os.getcwd()
        self._environ = dict(os.environ)
        self._path = list(sys.path)
        self._stdio = sys.stdin, sys.stdout, sys.stderr
        self._umask = _umask()
        self._recursion = sys.getrecursionlimit()
        self._handlers = [signal.getsignal(number) for number in _WATCHED]
        self._threads = threading.active_count()
        self._streams = _streams()
        self._files = _open_files()
        self._limits = [resource.getrlimit(number) for number in _LIMITS]

    def restore(self) -> list[str]:
        """Put the worker back; returns why it cannot serve another call, or nothing."""
        sys.setrecursionlimit(self._recursion)
        try:
            self._put_back()
        except Exception as error:
            return [f"{type(error).__name__} while the worker was put back"]
        return self._damage()

    def _put_back(self) -> None:
        for kind in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(kind, 0)
        for number, handler in zip(_WATCHED, self._handlers, strict=True):
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
        if dict(os.environ) != self._environ:
            os.environ.clear()
            os.environ.update(self._environ)
        sys.path[:] = self._path
        sys.stdin, sys.stdout, sys.stderr = self._stdio
        os.umask(self._umask)
        os.chdir(self._cwd)

    def _damage(self) -> list[str]:
        found = []
        if self._threads_left():
            found.append("threads left behind")
        if _streams() != self._streams:
            found.append("standard streams closed or redirected")
        elif _too_many(_open_files(), self._files):
            found.append("files left open")
        if [resource.getrlimit(number) for number in _LIMITS] != self._limits:
            found.append("limits changed")
        return found

    def _threads_left(self) -> bool:
        """Threads that are about to end are given a moment."""
        until = time.monotonic() + _SETTLE_S
        while threading.active_count() > self._threads:
            if time.monotonic() > until:
                return True
            time.sleep(0.001)
        return False


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _streams() -> list[tuple[int, int] | None]:
    return [_identity(fd) for fd in (0, 1, 2)]


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _too_many(now: int | None, before: int | None) -> bool:
    """Where they could be counted before the call and no longer can be, not even the one file for counting could be opened."""
    return before is not None and (now is None or now > before + _SPARE_FILES)


def _open_files() -> int | None:
    """None where they cannot be counted."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return None
