"""Demonstration 4: a read starts while the model still streams its message; a call with an effect never does."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from callgate.agent import PRESETS, Agent
from callgate.calls import Scope
from callgate.demo import tools
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, events_in
from callgate.demo._model import recorded_requests, scripted_model, until_called
from callgate.events import Event
from callgate.testing import Call, Drop
from callgate.testing.scripted_server import Script

__all__ = ["early"]

_READ = Call("look_up", {"account": "A", "seconds": 0.2})
_PAY = Call("charge", {"account": "B", "cents": 5, "seconds": 0.0})


async def early(stage: DemoRun) -> list[Finding]:
    """Run three tasks that show when a read starts early.

    In the first task, the message continues after its read has ended. In the second, early starts are turned off. In
    the third, the connection drops before the message is complete.
    """
    async with stage.engine([tools.look_up, tools.charge]) as engine:
        held = until_called(engine.bus, "call.completed")
        turns: list[Script] = [
            ["I look up the account, ", _READ, _PAY, held, "and pay from another one."],
            "Both are done.",
            ["Once more, without an early start.", _READ, _PAY],
            "Done.",
            ["And one that breaks off.", _READ, until_called(engine.bus, "call.started", times=5), Drop()],
        ]
        late = replace(PRESETS["agent"], early_start=False)
        statuses = []
        async with scripted_model(turns, stage.root / "requests.jsonl") as model:
            for run, settings in (("held", None), ("late", late), ("broken", None)):
                agent = Agent(model, engine, settings=settings)
                statuses.append((await agent.run(f"Run '{run}'.", scope=_scope(stage, run), on_event=stage.screen.tell)).status)
                await agent.close()
    return _findings(stage, statuses)


def _scope(stage: DemoRun, run: str) -> Scope:
    return replace(stage.scope(), run=run, conversation=run)


def _findings(stage: DemoRun, statuses: Sequence[str]) -> list[Finding]:
    events = events_in(stage.journal)
    read, ended = _at(events, "held", "call.started", 0), _at(events, "held", "call.completed", 0)
    pay, whole = _at(events, "held", "call.started", 1), _at(events, "held", "emission.sealed")
    late_read, late_whole = _at(events, "late", "call.started", 0), _at(events, "late", "emission.sealed")
    broken, dropped = _at(events, "broken", "call.started", 0), _at(events, "broken", "emission.discarded")
    requests = recorded_requests(stage.root / "requests.jsonl")
    charged = stage.ledger.entries("effect")
    return [
        finding("the read started before its message was complete", 0 < read < whole, f"event {read}, the message's end is event {whole}"),
        finding(
            "and had its result, which the server waited for before it sent the rest", 0 < ended < whole, f"event {ended}, before {whole}"
        ),
        finding("the payment of the same message waited for its end", 0 < whole < pay, f"event {pay}, after {whole}"),
        finding(
            "with early start off the same read waits as well", 0 < late_whole < late_read, f"event {late_read}, after event {late_whole}"
        ),
        finding("a message that broke off took back what it had started", 0 < broken < dropped, f"started {broken}, dropped {dropped}"),
        finding("and only that run failed", statuses == ["completed", "completed", "failed"], statuses),
        finding("every payment happened exactly once", len(charged) == 2, (entry.what for entry in charged)),
        finding("the model was asked over HTTP, once per message", len(requests) == 5, f"{len(requests)} requests"),
    ]


def _at(events: list[Event], run: str, kind: str, index: int | None = None) -> int:
    """Return the position of the first event of this kind for the run's call or message; 0 if there is none."""
    for event in events:
        if event.run == run and event.kind == kind and (index is None or event.call.rpartition("/")[2] == str(index)):
            return event.position
    return 0
