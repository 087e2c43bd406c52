"""Find all descendants of a process, in /proc, or with `ps` on systems without it, and kill them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

__all__ = ["PROC", "ProcessTree", "adopt_orphans"]

PATIENCE_S = 5.0
"""How long killing is repeated before survivors are reported."""
LOOKS = 2
PR_SET_CHILD_SUBREAPER = 36

PROC = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


class ProcessTree:
    """The descendants of a process. Complete if that process adopts its orphaned descendants (Linux)."""

    def __init__(self, root: int, *, proc: bool = PROC) -> None:
        self._root = root
        self._proc = proc

    def alive(self) -> list[int]:
        """Return the pids of all descendants that still run, parents before their children."""
        table = None if self._proc else _parents_by_ps()
        found: list[int] = []
        waiting = [self._root]
        while waiting:
            pid = waiting.pop()
            below = _children(pid) if table is None else [child for child, parent in table if parent == pid]
            found += below
            waiting += below
        return [pid for pid in found if not _has_ended(pid, self._proc)]

    @staticmethod
    def signal(pids: list[int], *signals: int) -> None:
        for pid in pids:
            for number in signals:
                try:
                    os.kill(pid, number)
                except OSError:
                    break  # has ended, or belongs to another user: remaining processes are reported

    def kill(self, reap: Callable[[], None], *, spare: int = 0) -> int:
        """Kill all descendants repeatedly until none is left; return how many survived.

        Args:
            reap: Waits for children that have ended.
            spare: A process that is left alone.
        """
        until = time.monotonic() + PATIENCE_S
        unseen = 0
        while True:
            left = [pid for pid in self.alive() if pid != spare]
            # Twice, because a process can change its parent during the listing, and then appears below neither.
            unseen = 0 if left else unseen + 1
            if unseen == LOOKS or time.monotonic() > until:
                return len(left)
            if left:
                self.signal(left, signal.SIGKILL)
                time.sleep(0.0005)
            reap()


def adopt_orphans() -> None:
    """Become the parent of all orphaned descendants. Supported on Linux only; elsewhere, orphans cannot be tracked."""
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError("prctl(PR_SET_CHILD_SUBREAPER) failed: processes that a tool orphans could not be ended")


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [child for task in tasks for child in _children_of_task(pid, task)]


def _children_of_task(pid: int, task: str) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # has ended: its children have a new parent, and the next listing finds them there


def _parents_by_ps() -> list[tuple[int, int]]:
    with os.popen("ps -axo pid=,ppid=,stat=") as listing:
        rows = [line.split() for line in listing]
    return [(int(row[0]), int(row[1])) for row in rows if not row[2].startswith("Z")]


def _has_ended(pid: int, proc: bool) -> bool:
    try:
        if not proc:
            os.kill(pid, 0)
            return False
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in b"ZX"
    except PermissionError:
        return False
    except OSError:
        return True
