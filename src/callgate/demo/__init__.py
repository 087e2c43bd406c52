"""Demonstrations that prove what they show, each with an honest outcome.

Beside the command line, above the engine: they use nothing that a user could not. A demonstration runs real tools against real files and
processes, its screen is drawn from events alone, and its findings come from witnesses outside of the engine: a ledger that tools write
themselves, the operating system's processes, the files. Must not be imported by the engine.
"""

from __future__ import annotations

from callgate.demo._catalogue import DEMOS, Demo, Outcome, run_demo
from callgate.demo._verification import Finding
from callgate.demo.crash import verify_crash
from callgate.demo.repair import verify_repair

__all__ = ["DEMOS", "Demo", "Finding", "Outcome", "run_demo", "verify_crash", "verify_repair"]
