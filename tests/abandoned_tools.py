"""End threads that a test leaves in a tool. A tool in a thread cannot be stopped, and one that spins slows every later test."""

from __future__ import annotations

import ctypes
import sys
import threading
from types import FrameType
from typing import Final

import psutil

from callgate._runners import thread_pool, thread_runner

__all__ = ["ToolLeft", "end_stray_tools"]

SPINS_S: Final = 0.05
"""Processor time, in seconds, after which a tool's thread counts as spinning."""

first_seen: Final[dict[int, float]] = {}
"""Processor time that each thread inside a tool had used when it was first seen, by the kernel's thread id."""


class ToolLeft(BaseException):
    """Raised in a tool that spins after its test has ended. If the tool is just returning, the thread raises it afterwards, which is
    harmless.
    """


def end_stray_tools() -> None:
    """Raise `ToolLeft` in each thread that spins inside a tool.

    Threads that wait are skipped: the exception would reach them only when the wait ends, and until then CPython 3.11 repeats the entry of
    a profiled function forever in every other thread.
    """
    frames = sys._current_frames()
    inside = [thread for thread in threading.enumerate() if thread.ident and _is_in_a_tool(frames.get(thread.ident))]
    used = {one.id: one.user_time + one.system_time for one in psutil.Process().threads()} if inside else {}
    for number in first_seen.keys() - {thread.native_id for thread in inside}:
        del first_seen[number]
    for thread in inside:
        number = thread.native_id or 0
        if used.get(number, 0.0) - first_seen.setdefault(number, used.get(number, 0.0)) > SPINS_S:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(ToolLeft))


def _is_in_a_tool(frame: FrameType | None) -> bool:
    """Return whether the innermost frame belongs to the tool and not to the runner."""
    own = frame is not None and frame.f_code.co_filename in (thread_runner.__file__, thread_pool.__file__, threading.__file__)
    while frame is not None and not own:
        if frame.f_code.co_filename == thread_runner.__file__:
            return True
        frame = frame.f_back
    return False
