"""Threads that a test leaves behind: nothing can stop a tool in one, and a tool that spins slows every later test."""

from __future__ import annotations

import ctypes
import sys
import threading
from types import FrameType

from callgate._runners import thread_pool, threads

__all__ = ["ToolLeft", "end_stray_tools"]


class ToolLeft(BaseException):
    """Raised in a tool whose test has ended; one that was just leaving is ended behind the tool, and that is no fault."""


def end_stray_tools() -> None:
    """Have each thread that is still inside a tool leave it when it next comes to Python code."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread.ident in frames and _is_in_a_tool(frames[thread.ident]):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(ToolLeft))


def _is_in_a_tool(frame: FrameType | None) -> bool:
    """Whether the innermost frame is the tool's, and not the runner's own."""
    own = frame is not None and frame.f_code.co_filename in (threads.__file__, thread_pool.__file__, threading.__file__)
    while frame is not None and not own:
        if frame.f_code.co_filename == threads.__file__:
            return True
        frame = frame.f_back
    return False
