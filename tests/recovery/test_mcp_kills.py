"""Tests that kill the engine, an MCP server or both at each step of a call: an effect happens once or is reported as unknown, never twice.

They run a part of the fault table of MCP tools; `make faults` runs all of it.
"""

from __future__ import annotations

import sys

import pytest

from tests.recovery.mcp_kill_cases import USERS, VICTIMS, cells, faults_of, outcomes
from tests.recovery.mcp_kills import Cell

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="forks, kills and looks in /proc")]

SERVER = VICTIMS[1:2]
DOUBTFUL = ("started", "acted", "answered")

SETS: dict[str, list[Cell]] = {
    **{f"once, {user}": list(cells("stdio", ["once"], VICTIMS, [user])) for user in USERS},
    "none and idempotent, after the effect": list(cells("stdio", ["none", "idempotent"], steps=["acted"])),
    "one key in two runs": list(cells("stdio", ["keyed"], VICTIMS[:2], ["library"], DOUBTFUL)),
    "handshake era": list(cells("stdio", ["once"], SERVER, ["agent"], DOUBTFUL, era="handshake")),
    "HTTP, once": [cell for era in ("stateless", "handshake") for cell in cells("http", ["once"], SERVER, ["library"], era=era)],
    "HTTP, none and idempotent": list(cells("http", ["none", "idempotent"], SERVER, ["agent"], ["read", "acted"])),
}


@pytest.mark.parametrize("cells", SETS.values(), ids=SETS)
def test_an_effect_of_an_mcp_tool_happens_once_or_is_unknown_after_a_kill_at_any_step(cells: list[Cell]) -> None:
    found = list(outcomes(cells))
    assert {str(outcome): faults for outcome in found if (faults := faults_of(outcome))} == {}
    assert len(found) == len(cells)
