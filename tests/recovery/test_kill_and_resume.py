"""Tests that kill a run with SIGKILL at any moment and resume it: each effect happens once or is reported as unknown, never twice.

They cover what a resumed run does with the calls that it finds. They run a part of the cases; `make faults` runs all of them.
"""

from __future__ import annotations

import sys

import pytest

from tests.recovery.fixture_tools import EFFECTS
from tests.recovery.kill_cases import Cell, faults_of, inside, moments, outcomes, twice

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="forks and kills")]

SETS: dict[str, list[Cell]] = {
    "inside the tool, in the engine's process": list(inside(EFFECTS, ["inline", "thread"])),
    "inside the tool, in a process of its own": list(inside(["idempotent", "once"], ["process"])),
    "behind each event of a once call": list(moments(["once"], ["inline"])),
    "behind each event of a once call that a worker process runs": list(moments(["once"], ["process"]))[4:16],
    "behind every third event of the others": list(moments(["none", "idempotent", "verified"], ["inline"]))[::3],
    "before the event is on disk": list(moments(["once"], ["inline"], durable=False))[::2],
    "and again while it is resumed": list(twice(["once", "idempotent"], [9], range(2, 11, 3))),
}


@pytest.mark.parametrize("cells", SETS.values(), ids=SETS)
def test_a_killed_run_never_repeats_an_effect_or_loses_one_silently(cells: list[Cell]) -> None:
    wrong = {str(outcome["cell"]): faults for outcome in outcomes(cells) if (faults := faults_of(outcome))}
    assert wrong == {}
