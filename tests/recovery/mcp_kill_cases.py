"""The fault table of MCP tools: its cells, and what each must report. The server's ledger decides what happened, not the journal.

`python -m tests.recovery.mcp_kill_cases` runs the whole table and prints the violations, and how soon the end of a server was reported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import product
from typing import Any, Final

from tests.forked_python import ForkedProcess
from tests.recovery.mcp_kills import Cell

__all__ = ["EFFECTS", "STEPS", "USERS", "VICTIMS", "cells", "faults_of", "outcomes"]

STEPS: Final = ("received", "started", "read", "acted", "answered", "answer arrived", "recorded")
"""The steps of a call: before its start is recorded; recorded, and not sent; read by the server; done; answered; before the answer is
recorded; recorded, and not shown."""
EFFECTS: Final = ("none", "idempotent", "once", "keyed")
"""`keyed` is `once`, and the call is made again in another run."""
VICTIMS: Final = (("engine",), ("server",), ("engine", "server"))
USERS: Final = ("library", "agent")
_REPORTED_S: Final = 1.0


def cells(
    transport: str,
    effects: Sequence[str] = EFFECTS,
    victims: Sequence[Sequence[str]] = VICTIMS,
    users: Sequence[str] = USERS,
    steps: Sequence[str] = STEPS,
    *,
    era: str = "stateless",
) -> Iterator[Cell]:
    for effect, killed, user, step in product(effects, victims, users, steps):
        yield {"transport": transport, "era": era, "effect": effect, "victims": killed, "user": user, "step": step}


def outcomes(cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each cell."""
    text = "".join(json.dumps(cell) + "\n" for cell in cells)
    with closing(ForkedProcess("python -c", ["from tests.recovery.mcp_kills import main; main()"])) as driver:
        driver.stdin.write(text)
        driver.stdin.close()
        for line in driver.stdout:
            yield json.loads(line)
        if code := driver.wait():
            raise RuntimeError(f"the driver ended with {code}")


def faults_of(outcome: Mapping[str, Any]) -> list[str]:
    """Return what this outcome violates."""
    return [*_of_kill(outcome), *_of_effect(outcome), *_of_reports(outcome)]


def _of_kill(outcome: Mapping[str, Any]) -> Iterator[str]:
    ended_before = outcome["cell"]["step"] == "answered" and not outcome["engine_killed"]  # while the server was about to kill
    as_meant = outcome["killed"] and outcome["engine_killed"] == ("engine" in outcome["cell"]["victims"])
    if not (as_meant or ended_before):
        yield "not what had to be killed was killed"
    if outcome["left"]:
        yield f"processes {outcome['left']} did not end"


def _of_effect(outcome: Mapping[str, Any]) -> Iterator[str]:
    done, received = len(outcome["ledger"]), len(outcome["received"])
    if outcome["cell"]["effect"] in ("once", "keyed") and (done > 1 or received > 1):
        yield f"sent {received} times and done {done} times"
    if outcome["last"]["status"] == "ok" and not done:
        yield "said to be done, and it was not"


def _of_reports(outcome: Mapping[str, Any]) -> Iterator[str]:
    cell, first, last = outcome["cell"], outcome["first"], outcome["last"]
    expected = _expected(cell)
    for told in (first, last) if first else (last,):
        if told["status"] not in expected:
            yield f"{told['status']}, and not {' or '.join(expected)}"
        if told["status"] == "unknown" and not ("may have" in told["text"] and "Check" in told["text"]):
            yield f"it is not said what to check: {told['text']}"
        if told["run"] not in ("", "completed"):
            yield f"the run ended {told['run']}"
    if first and first["status"] != last["status"]:
        yield f"{last['status']} after {first['status']}"


def _expected(cell: Cell) -> tuple[str, ...]:
    """Return the statuses that a cell may report. There are two where the kill and the other process race."""
    effect, step, engine_killed = cell["effect"], cell["step"], "engine" in cell["victims"]
    if effect == "none" or (effect == "idempotent" and (not engine_killed or cell["user"] == "agent")):
        return ("ok",)
    if step == "recorded" or step == ("received" if engine_killed else "answer arrived"):
        return ("ok",)
    if engine_killed:
        return ("ok", "unknown") if step == "answered" else ("unknown",)
    if step in ("received", "started"):
        return ("ok", "unknown")
    return ("unknown",) if step in ("read", "acted") else ("ok",)


def main() -> int:
    table = [*cells("stdio"), *cells("stdio", era="handshake"), *cells("http"), *cells("http", era="handshake")]
    seen, wrong, latest_s = 0, 0, 0.0
    for outcome in outcomes(table):
        faults = faults_of(outcome)
        seen, wrong = seen + 1, wrong + bool(faults)
        if outcome["first"].get("status") == "unknown":
            latest_s = max(latest_s, outcome["first"]["reported_s"])
        if faults:
            print(json.dumps(outcome), *faults, sep="\n  ")  # noqa: T201
    print(f"{seen} of {len(table)} cells, {wrong} not as promised; the end of a server reported within {latest_s:.2f} s")  # noqa: T201
    return 1 if wrong or seen != len(table) or latest_s > _REPORTED_S else 0


if __name__ == "__main__":
    sys.exit(main())
