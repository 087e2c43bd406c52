"""Demonstration 2: kill -9 anywhere; after a resume each effect happened once, or is said to be unknown with what to check. Never twice."""

from __future__ import annotations

from callgate.demo.crash._scenario import crash
from callgate.demo.crash._verify import verify_crash

__all__ = ["crash", "verify_crash"]
