"""What tests of an agent need: a clock that stands still until it is told to move."""

from __future__ import annotations

from callgate.testing.clock import ManualClock

__all__ = ["ManualClock"]
