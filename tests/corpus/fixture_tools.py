"""The tools of the hostile inputs, with a ledger and a root folder."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from callgate import Tool
from tests.corpus.input_files import FOLDER
from tests.effect_ledger import Ledger

__all__ = ["fixture_tools"]


class FixtureTool(Tool):
    """A tool defined by the inputs: its schema, its effect, and its behaviour. Every execution adds a line to the ledger."""

    category = "safe_chain"
    requires_actor = False
    wraps_result = True

    def __init__(self, row: dict[str, Any], ledger: Ledger, root: Path) -> None:
        self.name = row["name"]
        self.description = row["why"]
        self.parameters = row["inputSchema"]
        self.effect = {"read": "none", "file": "idempotent", "effect": "once"}[row["effect"]]  # type: ignore[assignment]
        if row["effect"] == "file":
            self.writes = "file:{path}"
        if self.name == "read_file":
            self.reads = "file:{path}"
        self._ledger = ledger
        self._root = root

    async def execute(self, actor: str, **params: Any) -> Any:
        self._ledger.write(json.dumps([self.name, params]))
        match self.name:
            case "ping":
                return "pong"
            case "add":
                return params["a"] + params["b"]
            case "sleep":
                await asyncio.sleep(params["ms"] / 1000)
                return params["ms"]
            case "boom":
                raise ValueError("boom")
            case "read_file":
                path = self._root / params["path"]
                return path.read_text(encoding="utf-8") if path.exists() else ""
            case "write_file":
                (self._root / params["path"]).write_text(params["content"], encoding="utf-8")
                return "written"
        return params


def fixture_tools(ledger: Ledger, root: Path) -> list[Tool]:
    lines = (FOLDER / "hostile/tools.jsonl").read_text(encoding="utf-8").splitlines()
    return [FixtureTool(json.loads(line), ledger, root) for line in lines]
