"""The recovery state machines, and a command that runs many long histories of each.

Run `python -m tests.recovery.histories`; an argument sets the number of histories.
"""

from __future__ import annotations

import logging
import sys

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.recovery.calls_machine import CallsMachine
from tests.recovery.runs_machine import RunsMachine

__all__ = ["CALLS", "RUNS", "settings_of"]

CALLS, RUNS = CallsMachine, RunsMachine


def settings_of(*, max_examples: int, stateful_step_count: int) -> settings:
    """Return Hypothesis settings for this number of histories and steps, without a time limit."""
    return settings(
        max_examples=max_examples, stateful_step_count=stateful_step_count, deadline=None, suppress_health_check=list(HealthCheck)
    )


def main() -> int:
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    logging.getLogger("callgate").setLevel(logging.CRITICAL)
    for machine in (CALLS, RUNS):
        run_state_machine_as_test(machine, settings=settings_of(max_examples=many, stateful_step_count=30))
        print(f"{machine.__name__}: {many} histories kept what is promised")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
