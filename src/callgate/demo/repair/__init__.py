"""The main demonstration: a repository with a failing test is repaired by tool calls; on the way happens what happens to agents."""

from __future__ import annotations

from callgate.demo.repair._scenario import repair
from callgate.demo.repair._verify import verify_repair

__all__ = ["repair", "verify_repair"]
