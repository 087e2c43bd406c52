"""Tests of random histories of calls and runs, with deaths, restarts, stops, repeats and answers: the guarantees must hold.

These tests run a part of the histories; `make faults` (`python -m tests.recovery.histories`) runs more and longer ones.
"""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.recovery.histories import CALLS, RUNS, settings_of

pytestmark = pytest.mark.slow

QUICK = settings_of(max_examples=25, stateful_step_count=15)


def test_no_history_of_calls_repeats_an_effect_or_loses_a_returned_result() -> None:
    """Covers repeated calls, effects that are safe to repeat, and what the model is told about an unknown outcome."""
    run_state_machine_as_test(CALLS, settings=QUICK)


def test_no_history_of_runs_repeats_an_effect_or_loses_a_returned_result() -> None:
    """Covers which calls a resumed run starts again and which it does not."""
    run_state_machine_as_test(RUNS, settings=QUICK)
