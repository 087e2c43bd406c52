"""Demonstration 2: after kill -9 and a resume, each effect happened once or is reported as unknown, never twice."""

from __future__ import annotations

from callgate.demo.crash._scenario import crash
from callgate.demo.crash._verify import verify_crash

__all__ = ["crash", "verify_crash"]
