"""The main demonstration: an agent repairs a repository with a failing test, while calls fail, hang, crash and are denied."""

from __future__ import annotations

from callgate.demo.repair._scenario import repair
from callgate.demo.repair._verify import verify_repair

__all__ = ["repair", "verify_repair"]
