"""Let an agent repair the repository.

With a scripted model behind HTTP, whose last call the user kills; or with the reader's own model, where the environment names one.
"""

from __future__ import annotations

import json

from msgspec.structs import replace

from callgate.agent import PRESETS, Agent, Budget, RunResult
from callgate.builtins import result_tools
from callgate.demo import tools
from callgate.demo._findings import Finding
from callgate.demo._messages import script
from callgate.demo._model import own_model, scripted_model, until_called
from callgate.demo._stage import Stage, killed_at
from callgate.demo.repair._project import test_command, write_project
from callgate.demo.repair._turns import reading_pace, turns
from callgate.demo.repair._verify import verify_repair
from callgate.demo.repair._verify_own import verify_own
from callgate.engine import Engine
from callgate.models.http_model import HttpModel
from callgate.models.model import Model

__all__ = ["repair"]

TASK = (
    "A test of this repository fails: customer C-17 was charged 9 cents for order A-04711, and the invoice says 10. Find out why and repair"
    " the code. The tests stay as they are. Run them with run_command and this command: {command}"
)


async def repair(stage: Stage) -> list[Finding]:
    """Repair the repository; returns what was proven, and what was not."""
    theirs = own_model()
    write_project(stage.root / "repository")
    own = [tools.run_command, tools.edit_file, tools.order_history, tools.check_format, tools.legacy_export]
    async with stage.engine([*tools.read_tools(), *own, *result_tools(stage.blobs)], rules="policy", repair=True) as engine:
        if theirs is None:
            await _scripted(stage, engine)
        else:
            result = await _own(stage, engine, theirs)
    return verify_repair(stage.root) if theirs is None else verify_own(stage.root, result)


async def _scripted(stage: Stage, engine: Engine) -> None:
    choices = script("repair")
    held = until_called(engine.bus, "call.started")
    pace = reading_pace(choices) if stage.screen.lively else None
    async with scripted_model(turns(choices, held), stage.root / "requests.jsonl", pace=pace) as model:
        stage.screen.note("The model is a script behind HTTP on this machine, in the format of OpenAI's chat completions.")
        with killed_at(engine, stage.name, "watching"):
            await _run(stage, engine, model)


async def _own(stage: Stage, engine: Engine, model: HttpModel) -> RunResult:
    stage.screen.note(f"The model is {model.provider}:{model.name}, as the environment says. CALLGATE_MODEL=scripted plays the script.")
    try:
        return await _run(stage, engine, model)
    finally:
        await model.close()


async def _run(stage: Stage, engine: Engine, model: Model) -> RunResult:
    settings = replace(PRESETS["agent"], budget=Budget(iterations=30))
    task = TASK.format(command=json.dumps(test_command()))
    async with Agent(model, engine, settings=settings) as agent:
        scope = stage.scope(workspace=stage.root / "repository")
        return await agent.run(task, conversation=stage.name, scope=scope, on_event=stage.screen.tell)
