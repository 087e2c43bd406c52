"""Run the scripted model's messages through an engine, and be the user who kills the last call."""

from __future__ import annotations

import json

from callgate.builtins import result_tools
from callgate.demo import tools
from callgate.demo._findings import Finding
from callgate.demo._messages import calls_of, script
from callgate.demo._stage import Stage, killed_at, result_of
from callgate.demo.repair._project import test_command, write_project
from callgate.demo.repair._verify import verify_repair

__all__ = ["repair"]


async def repair(stage: Stage) -> list[Finding]:
    """Repair the repository; returns what was proven, and what was not."""
    workspace = stage.root / "repository"
    write_project(workspace)
    own = [tools.run_command, tools.edit_file, tools.order_history, tools.check_format, tools.legacy_export]
    known = {"test_command": json.dumps(test_command())}
    async with stage.engine([*tools.read_tools(), *own, *result_tools(stage.blobs)], rules="policy", repair=True) as engine:
        for iteration, choice in enumerate(script("repair")):
            with killed_at(engine, stage.name, "watching"):
                outcomes = await engine.call_many(calls_of(choice, known), stage.scope(iteration=iteration, workspace=workspace))
            results = [result for outcome in outcomes if (result := result_of(outcome)) is not None]
            known |= {result.id: result.metadata.blob for result in results if result.metadata.blob}
    return verify_repair(stage.root)
