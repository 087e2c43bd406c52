"""Undo what a call changed in its worker, and report what cannot be undone.

A worker runs calls of several tools, so a call must not see what an earlier one left. Restored after each call: working directory,
environment, import path and hooks, umask, recursion limit, signal handlers and mask, timers, locale, time zone. Then all of these, and
everything else that can be read (`worker_state`), is compared; the worker is replaced if they differ, if threads still run, if standard
descriptors were closed or redirected, if more than a few files stay open, or if memory ran out. Not compared, and kept until the worker
ends: a tool's own globals, and the contents of modules and classes. The engine is never affected.
"""

from __future__ import annotations

import locale
import os
import signal
import sys
import threading
import time
from contextlib import suppress

from callgate._runners.process.worker_state import FACTS, WATCHED, KernelStatus, LoadedCode, c_environment

__all__ = ["Baseline"]

_SPARE_FILES = 16
"""The number of files that calls may leave open: connections that a tool keeps for the next call."""
_SETTLE_S = 0.05


class Baseline:
    """The worker's state before a call; also valid for the next call if nothing has changed."""

    def __init__(self) -> None:
        self._cwd = os.getcwd()
        self._environ_object = os.environ
        self._environ = dict(os.environ)
        self._c_environ = c_environment()
        self._path = list(sys.path)
        self._import_hooks = list(sys.meta_path), list(sys.path_hooks)
        self._stdio = sys.stdin, sys.stdout, sys.stderr
        self._umask = _umask()
        self._recursion = sys.getrecursionlimit()
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._status = KernelStatus.read()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._locale = locale.setlocale(locale.LC_ALL)
        self._threads = threading.active_count()
        self._streams = _streams()
        self._files = _open_files()
        self._code = LoadedCode()
        self._facts = {name: read() for name, read in FACTS.items()}

    def restore(self) -> list[str]:
        """Restore the worker; return the reasons why it cannot run another call, or an empty list."""
        sys.setrecursionlimit(self._recursion)
        try:
            status = self._restore_state()
            return self._damage(status)
        except Exception as error:
            return [f"{type(error).__name__} while the worker was put back"]

    def _restore_state(self) -> KernelStatus:
        """Restore what can be restored; return the kernel's status afterwards."""
        for kind in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(kind, 0)
        status = self._restore_signals(KernelStatus.read())
        os.environ = self._environ_object  # noqa: B003 - the object that a tool may have replaced, not its content
        os.environ.pop("CALLGATE_CALL", None)
        if self._c_environ is None or c_environment() != self._c_environ:
            os.environ.clear()
            os.environ.update(self._environ)
        if (time.tzname, time.timezone, time.altzone, time.daylight) != self._facts["time zone"]:
            time.tzset()
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)
        sys.path[:] = self._path
        sys.meta_path[:], sys.path_hooks[:] = self._import_hooks
        sys.stdin, sys.stdout, sys.stderr = self._stdio
        os.umask(self._umask)
        os.chdir(self._cwd)
        return status

    def _restore_signals(self, status: KernelStatus) -> KernelStatus:
        # A handler set other than through Python changes only the kernel's status; replacing one handler by another changes only Python's.
        everywhere = not status.signals or status.signals != self._status.signals
        for number in self._handlers if everywhere else WATCHED:
            handler = self._handlers[number]
            if handler is not None and (everywhere or signal.getsignal(number) != handler):
                with suppress(OSError):  # SIGKILL and SIGSTOP have none
                    signal.signal(number, handler)
        if not everywhere:
            return status
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return KernelStatus.read()

    def _damage(self, status: KernelStatus) -> list[str]:
        found = []
        if self._has_threads_left():
            found.append("threads left behind")
        if _streams() != self._streams:
            found.append("standard streams closed or redirected")
        elif _has_too_many(_open_files(), self._files):
            found.append("files left open")
        if status.signals != self._status.signals:
            found.append("signal handlers changed")
        if status.rights != self._status.rights:
            found.append("rights changed")
        if c_environment() != self._c_environ:
            found.append("environment changed past os.environ")
        if self._code.is_changed():
            found.append("loaded modules or functions of the standard library replaced")
        return found + [f"{name} changed" for name, read in FACTS.items() if read() != self._facts[name]]

    def _has_threads_left(self) -> bool:
        """Return whether there are more threads than before; threads that are ending get a moment."""
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


def _has_too_many(now: int | None, before: int | None) -> bool:
    """Return whether too many files are open. If counting worked before and fails now, not even one more file could be opened."""
    return before is not None and (now is None or now > before + _SPARE_FILES)


def _open_files() -> int | None:
    """Return the number of open files, or None if it is not known."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return None
