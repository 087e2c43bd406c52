"""Identify a process of this machine so that another one can tell later whether it has ended.

Process ids are reused; together with the process's start time, the machine's boot id and the id's namespace, one identifies a process
permanently. Knows nothing of engines and workers.

Source: proc(5), `/proc/PID/stat` (field 3: state, field 22: start time in clock ticks), `/proc/sys/kernel/random/boot_id`.
"""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["has_ended", "process_identity"]

_DEAD = frozenset({"Z", "X", "x"})


def process_identity(pid: int | None = None) -> str:
    """Return the identity of a process of this machine, by default this one; empty if it is not running or cannot be identified."""
    pid = os.getpid() if pid is None else pid
    started = _start_time(pid)
    return f"{_host_name()}:{_boot_id()}:{_pid_namespace()}:{pid}:{started}" if started and _boot_id() else ""


def has_ended(identity: str) -> bool:
    """Return whether the process that `process_identity` named has certainly ended.

    False if it runs, if it ran on another machine or in another process id namespace, and if `identity` is not valid.
    """
    parts = identity.split(":")
    if len(parts) != 5 or not parts[3].isdigit() or parts[0] != _host_name() or not _boot_id():
        return False
    if parts[1] != _boot_id():
        return True
    return parts[2] == _pid_namespace() and _start_time(int(parts[3])) != parts[4]


def _start_time(pid: int) -> str:
    """Return a process's start time in clock ticks since boot; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in _DEAD else fields[19]


@cache
def _boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
    return ""


@cache
def _host_name() -> str:
    machine = ""
    with suppress(OSError):
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    return hashlib.sha256(f"{machine}/{socket.gethostname()}".encode()).hexdigest()[:12]


def _pid_namespace() -> str:
    with suppress(OSError):
        return str(os.stat("/proc/self/ns/pid").st_ino)
    return ""
