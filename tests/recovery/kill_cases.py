"""The recovery table: its cells, and the guarantees that each cell must keep. The ledger decides what happened, not the journal under test.

`python -m tests.recovery.kill_cases` runs the whole table and prints the violations.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from tests.forked_python import ForkedProcess
from tests.recovery.fixture_tools import EFFECTS, RUNNERS
from tests.recovery.kill_and_resume import CALLS

__all__ = ["faults_of", "inside", "moments", "outcomes", "twice"]

Cell = dict[str, Any]
_EVENTS = 24
"""More events than a run of two calls writes."""


def moments(effects: Sequence[str], runners: Sequence[str], *, durable: bool = True) -> Iterator[Cell]:
    """Yield cells that are killed after each event, whether or not that event is on disk."""
    for effect in effects:
        for runner in runners:
            for at in range(1, _EVENTS + 1):
                yield {"effect": effect, "runner": runner, "at": at, "durable": durable}


def inside(effects: Sequence[str], runners: Sequence[str]) -> Iterator[Cell]:
    """Yield cells that are killed by the tool itself, before or after its effect."""
    for effect in effects:
        for runner in runners:
            for when in ("before", "after"):
                yield {"effect": effect, "runner": runner, "inside": when}


def twice(effects: Sequence[str], ats: Iterable[int], agains: Iterable[int]) -> Iterator[Cell]:
    """Yield cells that are killed, and killed again while they are resumed."""
    for effect in effects:
        for again in agains:
            yield {"effect": effect, "runner": "inline", "inside": "after", "again": [again]}
            for at in ats:
                yield {"effect": effect, "runner": "inline", "at": at, "again": [again, again]}


def outcomes(cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each cell."""
    text = "".join(json.dumps(cell) + "\n" for cell in cells)
    with closing(ForkedProcess("python -c", ["from tests.recovery.kill_and_resume import main; main()"])) as driver:
        driver.stdin.write(text)
        driver.stdin.close()
        for line in driver.stdout:
            yield json.loads(line)
        if code := driver.wait():
            raise RuntimeError(f"the driver ended with {code}")


def faults_of(outcome: Mapping[str, Any]) -> list[str]:
    """Return the guarantees that this outcome violates."""
    done = [line.split()[0] for line in outcome["ledger"]]
    refused = outcome.get("refused", "")
    if refused:
        return ["nothing is on record, and something was done"] if done and outcome["cell"]["effect"] != "none" else []
    faults = [] if outcome["status"] == "completed" else [f"the run ended {outcome['status']}: {outcome['reason']}"]
    if outcome["told"] != dict.fromkeys(CALLS, 1):
        faults.append(f"the model was told {outcome['told']}")
    for what in CALLS:
        faults += [f"{what}: {fault}" for fault in _faults(what, outcome)]
    return faults + [f"made again from its record, it is another run: {one}" for one in outcome["differences"]]


def _faults(what: str, outcome: Mapping[str, Any]) -> Iterator[str]:
    effect, status = outcome["cell"]["effect"], outcome["results"].get(what, {}).get("status")
    lines = [line for line in outcome["ledger"] if line.split()[0] == what]
    expected = _expected(effect, outcome["cell"]["runner"], outcome["found"].get(what, ""))
    if "again" not in outcome["cell"] and status != expected:
        yield f"{status}, and not {expected}"
    if status not in (expected, "ok", "unknown"):
        yield f"ended {status}"
    if status == "ok" and not lines:
        yield "said to be done, and it was not"
    if effect in ("once", "verified") and len(lines) > 1:
        yield f"done {len(lines)} times"
    if effect != "none" and len(set(lines)) > 1:
        yield "done under two keys"


def _expected(effect: str, runner: str, step: str) -> str:
    claim = "call.claimed" if runner == "process" else "call.started"
    return "unknown" if effect == "once" and step == claim else "ok"


def main() -> int:
    cells = [
        *inside(EFFECTS, RUNNERS),
        *moments(EFFECTS, RUNNERS),
        *moments(EFFECTS, ["inline"], durable=False),
        *twice(["once", "verified", "idempotent"], range(3, 18, 3), range(1, 12)),
    ]
    seen: Counter[str] = Counter()
    for outcome in outcomes(cells):
        faults = faults_of(outcome)
        seen["wrong" if faults else "right"] += 1
        seen["killed"] += sum(outcome["killed"])
        if faults:
            print(json.dumps(outcome["cell"]), *faults, sep="\n  ")  # noqa: T201
    print(f"{len(cells)} cells, {seen['killed']} processes killed, {seen['wrong']} cells not as promised")  # noqa: T201
    return 1 if seen["wrong"] or sum((seen["right"], seen["wrong"])) != len(cells) else 0


if __name__ == "__main__":
    sys.exit(main())
