"""Demonstration 3: a cut-off call never runs; lossless conversions are accepted and noted; lossy ones are refused."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from callgate.calls import RawCall
from callgate.demo import tools
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, calls_in

__all__ = ["cut_off"]

Closed = Literal["sealed", "finished", "cut"]


class _Case(Struct, frozen=True):
    what: str
    arguments: str
    expected: str
    """The expected failure class of the call, or its status if it has no failure class."""
    notes: int = 0
    """The number of arguments that are expected to be converted."""
    closed: Closed = "finished"


_GOOD = '{"room": 4, "nights": 2, "guests": ["Ada"], "breakfast": true}'
_CASES = (
    _Case("valid arguments", _GOOD, "ok"),
    _Case("a message that ended by length", _GOOD, "truncated_arguments", closed="cut"),
    _Case("text that ends inside a list", '{"room": 5, "nights": 2, "guests": ["Ada"', "truncated_arguments"),
    _Case("text that ends inside a string", '{"room": 5, "nights": 2, "guests": ["Ad', "truncated_arguments"),
    _Case("text that ends inside a number's object", '{"room": 5, "nights": 1', "truncated_arguments"),
    _Case('"6" and "2" for integers', '{"room": "6", "nights": "2", "guests": ["Ada"]}', "ok", notes=2),
    _Case(
        '"[...]" for a list, "false" for a boolean',
        '{"room": 7, "nights": 2, "guests": "[\\"Ada\\"]", "breakfast": "false"}',
        "ok",
        notes=2,
    ),
    _Case("2.0 for an integer", '{"room": 8, "nights": 2.0, "guests": ["Ada"]}', "ok"),
    _Case("true for an integer", '{"room": true, "nights": 2, "guests": ["Ada"]}', "invalid_parameters"),
    _Case("2.5 for an integer", '{"room": 9, "nights": 2.5, "guests": ["Ada"]}', "invalid_parameters"),
    _Case("plain text for a list", '{"room": 9, "nights": 2, "guests": "Ada and Bob"}', "invalid_parameters"),
)


async def cut_off(stage: DemoRun) -> list[Finding]:
    """Call `book_room` with complete, cut-off, convertible and invalid arguments.

    Only complete arguments that convert without loss may reach the tool.
    """
    async with stage.engine([tools.book_room], repair=True) as engine:
        for iteration, case in enumerate(_CASES):
            raw = RawCall(name="book_room", arguments=case.arguments, origin="demonstration", closed=case.closed, reasoning=case.what)
            await engine.call(raw, stage.scope(iteration=iteration))
    return _findings(stage)


def _findings(stage: DemoRun) -> list[Finding]:
    calls = calls_in(stage.journal)
    findings = []
    for case, call in zip(_CASES, calls, strict=True):
        got = call.failure_class or call.status
        noted = sum(note.startswith("coerced") for note in call.notes)
        holds = got == case.expected and noted >= case.notes and bool(call.starts) == (case.expected == "ok")
        findings.append(finding(case.what, holds, got, f"{noted} noted" if noted else call.error or "as it came"))
    booked = stage.ledger.entries("effect")
    wanted = [call.uid for case, call in zip(_CASES, calls, strict=True) if case.expected == "ok"]
    exact = [entry.call for entry in booked] == wanted
    rooms = [entry.what.split(" for")[0] for entry in booked]
    return [*findings, finding("the tool ran for exactly those that were accepted", exact, rooms)]
