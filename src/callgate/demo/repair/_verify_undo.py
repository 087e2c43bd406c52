"""Compare the repository after the undo with its state before the run.

Compares which paths exist, and the content, mode and time of each.
"""

from __future__ import annotations

import json
from pathlib import Path

from callgate.demo._checks import Finding, finding
from callgate.demo._file_snapshot import Facts, differences, facts

__all__ = ["verify_undo"]


def verify_undo(root: Path) -> Finding:
    before: Facts = json.loads((root / "before.json").read_text(encoding="utf-8"))
    now, repaired = facts(root / "repository"), facts(root / "repaired")
    left = differences(before, now)
    changed = [path for path in differences(before, repaired) if path not in left]
    told = [f"{path} differs" for path in left] or [f"{len(now)} paths compared", f"{', '.join(changed) or 'nothing'} put back"]
    return finding("undo put everything back: bytes, modes, times, absence", not left, told)
