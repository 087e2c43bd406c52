"""The exit codes of all commands."""

from __future__ import annotations

from typing import Final

__all__ = ["DIFFERS", "FAILED", "HANGUP", "INTERRUPTED", "NEEDS_HUMAN", "OK", "STOPPED", "TERMINATED", "UNKNOWN", "USAGE"]

OK: Final = 0
FAILED: Final = 1
"""The call, the run or the check failed."""
USAGE: Final = 2
"""Wrong usage: the command could not be carried out as written."""
UNKNOWN: Final = 3
"""The call may have taken effect. Check this before repeating it."""
NEEDS_HUMAN: Final = 4
"""A human has to decide; nothing ran."""
STOPPED: Final = 5
"""A run used up its budget before its task was done."""
DIFFERS: Final = 6
"""A replayed run would have gone differently from the recorded one."""
INTERRUPTED: Final = 130
HANGUP: Final = 129
"""SIGHUP ended the command: the terminal is gone."""
TERMINATED: Final = 143
"""SIGTERM ended the command."""
