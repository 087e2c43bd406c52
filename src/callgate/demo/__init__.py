"""Demonstrations, each with claims that it checks.

They use only public interfaces. A demonstration runs real tools on real files and processes, and shows the engine's
events. It checks its claims against evidence from outside the engine: a ledger that the tools write, the operating
system's processes, and the files. The engine must not import this package.
"""

from __future__ import annotations

from callgate.demo._catalogue import DEMOS, Demo, Outcome, run_demo
from callgate.demo._checks import Finding
from callgate.demo.crash import verify_crash
from callgate.demo.repair import verify_repair

__all__ = ["DEMOS", "Demo", "Finding", "Outcome", "run_demo", "verify_crash", "verify_repair"]
