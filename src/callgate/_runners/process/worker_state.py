"""Read the parts of a worker's state that can be compared.

Separate from `worker_cleanup`, which decides what a difference means. Read-only: nothing here changes the process.
"""

from __future__ import annotations

import ctypes
import gc
import locale
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import ModuleType
from typing import NamedTuple

__all__ = ["FACTS", "WATCHED", "KernelStatus", "LoadedCode", "c_environment"]

WATCHED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE)
_LIMITS = tuple(sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_CPU"))
_RIGHTS = (b"Uid:", b"Gid:", b"Groups:", b"CapInh:", b"CapPrm:", b"CapEff:", b"CapBnd:", b"CapAmb:", b"NoNewPrivs:", b"Seccomp:")
_SIGNALS = (b"SigBlk:", b"SigIgn:", b"SigCgt:")
_PATCHED = ("builtins", "io", "json", "os", "os.path", "random", "shutil", "socket", "ssl", "subprocess", "sys", "tempfile", "time")
"""Modules of the standard library whose functions and classes are compared, if they are loaded."""


class KernelStatus(NamedTuple):
    """The status of this process in the kernel; empty if the system does not provide it."""

    rights: tuple[bytes, ...]
    """Its user, groups and capabilities."""
    signals: tuple[bytes, ...]
    """The blocked, ignored and caught signals, whatever code set them."""

    @classmethod
    def read(cls) -> KernelStatus:
        try:
            with open("/proc/self/status", "rb", buffering=0) as file:
                lines = (file.read() or b"").splitlines()
        except OSError:
            return cls((), ())
        return cls(tuple(line for line in lines if line.startswith(_RIGHTS)), tuple(line for line in lines if line.startswith(_SIGNALS)))


def _scheduling() -> object:
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    policy = os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None
    return affinity, policy, os.getpriority(os.PRIO_PROCESS, 0)


def _root() -> object:
    found = os.stat("/")
    return found.st_dev, found.st_ino


def _limits() -> object:
    return [resource.getrlimit(number) for number in _LIMITS], resource.getrlimit(resource.RLIMIT_CPU)[1]


def _interpreter() -> object:
    traced = sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()
    collected = gc.isenabled(), gc.get_threshold()
    return traced, collected, sys.getswitchinterval(), sys.get_int_max_str_digits(), socket.getdefaulttimeout()


FACTS: Mapping[str, Callable[[], object]] = {
    "user or group": lambda: (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()),
    "signal mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "time zone": lambda: (time.tzname, time.timezone, time.altzone, time.daylight),
    "processors or priority": _scheduling,
    "limits": _limits,
    "root folder": _root,
    "session or process group": lambda: (os.getsid(0), os.getpgrp()),
    "settings of the interpreter": _interpreter,
}
"""The functions that read the state before and after each call."""


def c_environment() -> frozenset[bytes] | None:
    """Return the environment that C code and new processes see, including changes by `os.putenv`; None if unknown."""
    try:
        entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    except (OSError, ValueError):
        return None
    found: set[bytes] = set()
    while entries and (entry := entries[len(found)]) is not None and entry not in found:
        found.add(entry)
    return frozenset(found)


class LoadedCode:
    """The loaded modules, and the functions and classes of the most used modules of the standard library."""

    def __init__(self) -> None:
        self._modules = dict(sys.modules)
        self._code = [_Code(module) for name in _PATCHED if isinstance(module := sys.modules.get(name), ModuleType)]

    def is_changed(self) -> bool:
        """Return whether one of them has been replaced; modules that were loaded since are ignored."""
        if not self._modules.items() <= sys.modules.items():
            return True
        return any(code.is_changed() for code in self._code)


class _Code:
    """The functions and classes of one module."""

    def __init__(self, module: ModuleType) -> None:
        self._names = vars(module)
        self._get = itemgetter(*(name for name, value in self._names.items() if callable(value)))
        self._values = self._get(self._names)

    def is_changed(self) -> bool:
        try:
            return bool(self._get(self._names) != self._values)
        except KeyError:
            return True
