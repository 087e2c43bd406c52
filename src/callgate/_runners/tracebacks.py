"""Tracebacks of tools' exceptions as bounded text, without the frames of callgate that called the tool.

Must not know who reads them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["traceback_of"]

_PACKAGE = Path(__file__).resolve().parent.parent
_ABOVE_A_TOOL = tuple(f"{_PACKAGE / name}/" for name in ("_runners", "tools"))
_MOST_FRAMES = 12
"""The number of frames that are kept at each end of a long traceback."""
_MOST_CAUSES = 5
_BECAUSE = "It was the cause of:"
_DURING = "While it was handled, this was raised:"


def traceback_of(error: BaseException, named: Callable[[BaseException], str]) -> str:
    """Return the frames and the types of an exception and of the exceptions that led to it, the earliest first.

    Args:
        named: Returns the type of an exception, with its text if that can be read.
    """
    try:
        return "\n".join(reversed(_parts(error, named)))
    except BaseException:  # the exception's class may be foreign code, and raise anything
        return ""


def _parts(error: BaseException, named: Callable[[BaseException], str]) -> list[str]:
    parts: list[str] = []
    earlier: BaseException | None = error
    while earlier is not None and len(parts) < 2 * _MOST_CAUSES:
        parts.append(f"{_frames(_attribute(earlier, '__traceback__'))}{named(earlier)}")
        cause = _attribute(earlier, "__cause__")
        earlier = cause if cause is not None or _attribute(earlier, "__suppress_context__") else _attribute(earlier, "__context__")
        if earlier is not None:
            parts.append(_DURING if cause is None else _BECAUSE)
    return parts if len(parts) % 2 else parts[:-1]


def _attribute(error: BaseException, name: str) -> Any:
    """Return an attribute that Python gave the exception, whatever its class says."""
    return BaseException.__dict__[name].__get__(error)


def _frames(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_ABOVE_A_TOOL):
        trace = trace.tb_next
    frames = list(traceback.walk_tb(trace))
    if len(frames) > 2 * _MOST_FRAMES:
        frames = frames[:_MOST_FRAMES] + frames[-_MOST_FRAMES:]
    return "".join(traceback.StackSummary.extract(iter(frames)).format())
