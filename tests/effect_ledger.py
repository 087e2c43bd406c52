"""A ledger file outside the engine, to which a tool under test writes one line per effect."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Ledger"]


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, line: str) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)

    def lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
