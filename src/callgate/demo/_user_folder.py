"""The read-only demonstration on a folder of the user: its tools only read, and a rule denies every effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from callgate.builtins import result_tools
from callgate.calls import ToolResult
from callgate.demo import tools
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, calls_in, raw, result_of
from callgate.demo._scripted_messages import calls_of, script

__all__ = ["read_folder"]


async def read_folder(stage: DemoRun, folder: Path) -> list[Finding]:
    """Read `folder` with tools that only read; return the findings."""
    known: dict[str, str] = {}
    async with stage.engine([*tools.read_tools(), *result_tools(stage.blobs)], rules="read_only") as engine:
        for iteration, choice in enumerate(script("folder")):
            scope = stage.scope(iteration=iteration, workspace=folder)
            outcomes = await engine.call_many(calls_of(choice, known), scope)
            results = {result.id: result for outcome in outcomes if (result := result_of(outcome)) is not None}
            known |= {"file": json.dumps(_some_file(results.get("call_a2"), folder))} if "call_a2" in results else {}
            for result in results.values():
                if result.metadata.blob:
                    found = raw("search_result", digest=result.metadata.blob, query="the", max_matches=3)
                    await engine.call(found, stage.scope(iteration=iteration + 1, workspace=folder))
    return _findings(stage)


def _some_file(listed: ToolResult | None, folder: Path) -> str:
    """Return the first small file of a listing."""
    value: Any = listed.data if listed is not None else None
    paths = [str(path) for path in value.get("paths", ())] if isinstance(value, dict) else []
    small = (path for path in paths if (folder / path).is_file() and 0 < (folder / path).stat().st_size < 100_000)
    readme = (path for path in paths if path.lower().startswith("readme"))
    return next(readme, next(small, "README.md"))


def _findings(stage: DemoRun) -> list[Finding]:
    calls = calls_in(stage.journal)
    effects = sorted({call.effect for call in calls if call.starts})
    broken = [f"{call.tool}: {call.error}" for call in calls if call.status != "ok" and call.failure_class != "tool_declared"]
    return [
        finding("only tools that read were started", effects == ["none"] and not stage.ledger.entries("effect"), f"effects {effects}"),
        finding("every call was answered", not broken, broken or f"{len(calls)} calls"),
    ]
