"""Find all descendants of a process, in /proc, or with `ps` on systems without it."""

from __future__ import annotations

import os

__all__ = ["PROC", "ProcessTree"]

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
