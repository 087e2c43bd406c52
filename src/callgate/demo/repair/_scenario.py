"""Let an agent repair the repository, kill its engine during a call, resume, and finally undo everything.

With the scripted model, the engine runs in its own process, which is killed and resumed by another. With the user's model, if the
environment names one, the engine runs in this process and is not killed.
"""

from __future__ import annotations

import json
import shutil

from callgate.agent import Agent, RunResult
from callgate.demo._checks import Finding
from callgate.demo._demo_run import DemoRun, events_in
from callgate.demo._file_snapshot import facts
from callgate.demo._model import held_until, own_model, scripted_server
from callgate.demo._processes import kill_process, start_process, until
from callgate.demo._scripted_messages import script
from callgate.demo.repair import _engine
from callgate.demo.repair._model_script import reading_pace, turns
from callgate.demo.repair._project import write_project
from callgate.demo.repair._verify import verify_repair
from callgate.demo.repair._verify_any_model import verify_own
from callgate.demo.repair._verify_undo import verify_undo
from callgate.errors import UsageError
from callgate.models.http_model import HttpModel
from callgate.undo import UndoHistory

__all__ = ["repair"]

_STUCK = "check_format"
"""The tool during whose call the engine is killed. It hangs in C and has started a child process."""


async def repair(stage: DemoRun) -> list[Finding]:
    """Repair the repository and undo it; return the findings."""
    theirs = own_model()
    write_project(stage.root / "repository")
    before = facts(stage.root / "repository")
    (stage.root / "before.json").write_text(json.dumps(before), encoding="utf-8")
    if theirs is None:
        await _run_scripted(stage)
        _take_back(stage)
        return verify_repair(stage.root)
    found = verify_own(stage.root, await _own(stage, theirs))
    _take_back(stage)
    return [*found, verify_undo(stage.root)]


async def _run_scripted(stage: DemoRun) -> None:
    choices = script("repair")
    held = held_until(lambda: _has_event(stage, "call.started"))
    pace = reading_pace(choices) if stage.screen.lively else None
    async with scripted_server(turns(choices, held), stage.root / "requests.jsonl", pace=pace) as url:
        stage.screen.note("The model is a script behind HTTP on this machine, in the format of OpenAI's chat completions.")
        await _run_until_killed(stage, url)
        async with start_process(stage.order(url, goes_on=True)):
            pass


async def _run_until_killed(stage: DemoRun, url: str) -> None:
    """Run one engine, kill it when the tool hangs, and write the state at that moment to a file."""
    async with start_process(stage.order(url)) as process:
        await until(lambda: _hangs(stage), process)
        code = await kill_process(process)
        effects = [entry.call for entry in stage.ledger.entries("effect")]
        at = max((event.position for event in events_in(stage.journal)), default=0)
        died = {"pid": process.pid, "code": code, "position": at, "effects": effects}
        (stage.root / "killed.json").write_text(json.dumps(died), encoding="utf-8")
    stage.screen.after_kill(f"kill -9 {process.pid}: the engine is gone. Another one resumes from the journal.")


def _hangs(stage: DemoRun) -> bool:
    """Return whether the tool and its child run, and the journal has the call's start and its message's end.

    All of this is required, because the start of a call without an effect reaches the disk some time after the tool has
    started.
    """
    noted = [entry.call for entry in stage.ledger.entries("process") if entry.tool == _STUCK]
    if len(noted) < 2:
        return False
    events = events_in(stage.journal)
    began = any(event.kind == "call.started" and event.call == noted[0] for event in events)
    return began and any(event.kind == "emission.sealed" and noted[0] in event.body.decode() for event in events)


def _has_event(stage: DemoRun, kind: str) -> bool:
    try:
        return any(event.kind == kind for event in events_in(stage.journal))
    except UsageError:
        return False  # the journal does not exist yet


async def _own(stage: DemoRun, model: HttpModel) -> RunResult:
    stage.screen.note(f"The model is {model.provider}:{model.name}, from the environment. CALLGATE_MODEL=scripted uses the script.")
    async with _engine.engine(stage) as engine:
        try:
            async with Agent(model, engine, settings=_engine.SETTINGS) as agent:
                return await _engine.begun(stage, agent)
        finally:
            await model.close()


def _take_back(stage: DemoRun) -> None:
    """Copy the repaired repository for inspection, then undo the whole run."""
    repository = stage.root / "repository"
    shutil.copytree(repository, stage.root / "repaired", symlinks=True)
    undo_history = UndoHistory(repository, place=stage.root / "kept")
    if not any(change.call.run == stage.name for change in undo_history.changes()):
        return
    stage.screen.note("")
    stage.screen.note(f"callgate undo {stage.name}")
    for path in undo_history.undo(stage.name).paths:
        stage.screen.note(f"   {path} is restored")
