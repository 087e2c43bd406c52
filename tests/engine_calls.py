"""Shorthands for calls, their results and their events."""

from __future__ import annotations

import json

from callgate import Answered, Engine, RawCall, Scope, ToolResult
from callgate.calls import Outcome
from callgate.events import TERMINAL, Event

__all__ = ["bodies", "call", "ends", "kinds", "result_of", "said", "verdicts"]


def call(name: str, /, *, id: str = "", key: str | None = None, **arguments: object) -> RawCall:
    return RawCall(name=name, arguments=json.dumps(arguments), id=id, idempotency_key=key)


def result_of(outcome: Outcome) -> ToolResult:
    assert isinstance(outcome, Answered), outcome
    return outcome.result


async def said(engine: Engine, raw: RawCall, scope: Scope | None = None) -> ToolResult:
    return result_of(await engine.call(raw, scope or Scope()))


def kinds(engine: Engine, uid: str | None = None) -> list[str]:
    return [event.kind for event in engine.journal.read(call=uid)]


def bodies(engine: Engine, kind: str) -> list[dict[str, object]]:
    return [body(event) for event in engine.journal.read() if event.kind == kind]


def verdicts(engine: Engine) -> list[dict[str, object]]:
    """The bodies of the events that record a verdict: on its own, or with the start that it allowed."""
    return [
        found for event in engine.journal.read() if event.kind in ("call.verdict", "call.started") and "verdict" in (found := body(event))
    ]


def body(event: Event) -> dict[str, object]:
    decoded = json.loads(event.body)
    assert isinstance(decoded, dict)
    return decoded


def ends(engine: Engine) -> dict[str, int]:
    """Return the number of terminal events of each call."""
    found: dict[str, int] = {}
    for event in engine.journal.read():
        if event.kind in TERMINAL:
            found[event.call] = found.get(event.call, 0) + 1
    return found
