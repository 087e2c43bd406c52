"""What the exit codes of every command mean."""

from __future__ import annotations

from typing import Final

__all__ = ["DIFFERS", "FAILED", "HANGUP", "INTERRUPTED", "NEEDS_HUMAN", "OK", "STOPPED", "TERMINATED", "UNKNOWN", "USAGE"]

OK: Final = 0
FAILED: Final = 1
"""The call or the run failed, or what was checked does not hold."""
USAGE: Final = 2
"""The command itself could not be carried out as it was written."""
UNKNOWN: Final = 3
"""The call may have taken effect: check before it is repeated."""
NEEDS_HUMAN: Final = 4
"""A human has to decide; nothing ran."""
STOPPED: Final = 5
"""A run ended before its task was done, because what it may use was used up."""
DIFFERS: Final = 6
"""A recorded run would have gone another way."""
INTERRUPTED: Final = 130
HANGUP: Final = 129
"""SIGHUP ended the command: the terminal is gone."""
TERMINATED: Final = 143
"""SIGTERM ended the command."""
