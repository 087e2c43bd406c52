"""For each of `MOMENTS`, start a run, kill its process at that moment, and let other processes resume the run."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import Any

from msgspec.structs import replace

from callgate.demo._checks import Finding
from callgate.demo._demo_run import DemoRun, calls_in
from callgate.demo._model import scripted_server
from callgate.demo._processes import kill_process, start_process
from callgate.demo.crash._engine import HERE
from callgate.demo.crash._kill_points import MOMENTS, ORDER, KillPoint
from callgate.demo.crash._verify import verify_crash
from callgate.testing import Call, ReceivedRequest
from callgate.testing.scripted_server import Script

__all__ = ["crash"]

_LINE = 76
_ARGUMENTS: dict[str, dict[str, object]] = {
    "stock": {"item": "lamp"},
    "set_price": {"item": "lamp", "cents": 900},
    "charge": {"account": "C-17", "cents": 900},
    "ship": {"parcel": "lamp for C-17"},
}


async def crash(stage: DemoRun) -> list[Finding]:
    """Kill a run at every moment, and compare the outcomes with the ledger."""
    kills: dict[str, list[int]] = {}
    async with scripted_server(_answer, stage.root / "requests.jsonl") as url:
        for moment in MOMENTS:
            stage.screen.note("")
            kills[moment.name] = await _kill_and_resume(stage, url, moment)
    (stage.root / "kills.json").write_text(json.dumps(kills), encoding="utf-8")
    _show_unknown(stage)
    return verify_crash(stage.root)


def _answer(received: ReceivedRequest) -> Script:
    """Return a model that makes all calls in one message and ends when it has the results."""
    messages: Any = received.body_json.get("messages", [])
    if any(message.get("role") == "tool" for message in messages):
        return ["Sold."]
    return ["I sell it. ", *(Call(tool, _ARGUMENTS[tool]) for tool in ORDER)]


async def _kill_and_resume(stage: DemoRun, url: str, moment: KillPoint) -> list[int]:
    """Run the processes of one moment; return their exit codes, below 0 for a signal."""
    ends = []
    for number, at in enumerate((moment.at, *moment.again, "")):
        order = replace(stage.order(url, goes_on=number > 0), run=moment.name, at=at)
        async with start_process(order, told=True) as process:
            assert process.stdout is not None
            if (await process.stdout.readline()).decode().strip() == HERE:
                await kill_process(process)
        assert process.returncode is not None
        ends.append(process.returncode)
        stage.screen.note(
            f"{moment.name:<13} {'resumed, ' if number else 'started, '} process {process.pid:<8} {_how(process.returncode, at)}"
        )
    return ends


def _show_unknown(stage: DemoRun) -> None:
    """Show what the model is told about a call with an unknown outcome."""
    unknown = next((call for call in calls_in(stage.journal) if call.status == "unknown"), None)
    if unknown is not None:
        stage.screen.note("")
        stage.screen.note(f"What the model was told of {unknown.uid}:")
        for line in wrap(unknown.error, _LINE):
            stage.screen.note(f"   {line}")


def _how(code: int, at: str) -> str:
    if code < 0:
        return f"kill -9, {at.removesuffix(' -').replace('call.', '').replace('run.', '').replace('phase.', 'a pass ')}"
    return "finished" if code == 0 else f"ended with {code}"
