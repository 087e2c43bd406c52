"""A program ends although a framework's plain function still runs: frameworks use threads that Python joins at the end."""

from __future__ import annotations

import pytest

from tests.integrations.hanging_agents import FRAMEWORKS
from tests.recovery.child_process import child_process
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_program_ends_while_the_functions_of_calls_that_timed_out_still_run(framework: str) -> None:
    """Of the imported tool, called without an agent, and of the wrapped one, called by an agent."""
    with child_process("tests.integrations.hanging_agents", framework) as process:
        told, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert told.count("hang timed out") == 2
