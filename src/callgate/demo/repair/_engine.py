"""The engine process of the main demonstration. One process starts the run; after a kill -9, another one resumes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from msgspec.structs import replace

from callgate.agent import PRESETS, Agent, Budget, RunResult
from callgate.builtins import result_tools
from callgate.demo import tools
from callgate.demo._demo_run import DemoRun, killed_at
from callgate.demo._model import scripted_at
from callgate.demo._processes import Order
from callgate.demo.repair._project import test_command
from callgate.engine import Engine
from callgate.mcp import mcp
from callgate.undo import UndoStore

__all__ = ["SETTINGS", "begun", "engine", "work"]

SETTINGS = replace(PRESETS["agent"], budget=Budget(iterations=30))
_TASK = (
    "A test of this repository fails: customer C-17 was charged 9 cents for order A-04711, and the invoice says 10. Find out why and repair"
    " the code. The tests stay as they are. Run them with run_command and this command: {command}"
)


def engine(stage: DemoRun) -> Engine:
    own = [tools.run_command, tools.edit_file, tools.order_history, tools.check_format, tools.legacy_export]
    given = [*tools.read_tools(), *own, *result_tools(stage.blobs)]
    invoices = mcp([sys.executable, "-m", "callgate.demo.repair._invoice_server"], name="invoices", effects={"find_invoice": "none"})
    return stage.engine([*given, invoices], rules="policy", repair=True, undo=UndoStore(stage.root / "kept"))


async def begun(stage: DemoRun, agent: Agent) -> RunResult:
    task = _TASK.format(command=json.dumps(test_command()))
    scope = stage.scope(workspace=stage.root / "repository")
    return await agent.run(task, conversation=stage.name, scope=scope, on_event=stage.screen.tell)


async def work(order: Order) -> None:
    """Start or resume the run."""
    stage = DemoRun(order.run, order.console, Path(order.root))
    model = scripted_at(order.url)
    running = engine(stage)
    async with running, Agent(model, running, settings=SETTINGS) as agent:
        with killed_at(running, stage.name, "watching"):
            if order.goes_on:
                await agent.resume(stage.name, extra=stage.scope().extra, on_event=stage.screen.tell)
            else:
                await begun(stage, agent)
    await model.close()
