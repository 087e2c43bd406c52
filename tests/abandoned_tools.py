"""Threads that a test leaves behind: nothing can stop a tool in one, and a tool that spins slows every later test."""

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
"""Processor time after which a tool's thread counts as one that spins."""

first_seen: Final[dict[int, float]] = {}
"""The processor time that each thread inside a tool had used when it was first seen there, by the kernel's number of the thread."""


class ToolLeft(BaseException):
    """Raised in a tool whose test has ended; one that was just leaving is ended behind the tool, and that is no fault."""


def end_stray_tools() -> None:
    """Raise `ToolLeft` in each thread that spins inside a tool.

    Not in one that waits: it would see the exception only when its wait ends, and until then CPython 3.11 repeats the entry of a
    profiled function for ever in every other thread.
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
    """Whether the innermost frame is the tool's, and not the runner's own."""
    own = frame is not None and frame.f_code.co_filename in (thread_runner.__file__, thread_pool.__file__, threading.__file__)
    while frame is not None and not own:
        if frame.f_code.co_filename == thread_runner.__file__:
            return True
        frame = frame.f_back
    return False
