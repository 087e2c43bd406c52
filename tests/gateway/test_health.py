"""What anybody may know of a gateway's health."""

from __future__ import annotations

import json
import sys

import pytest

from tests.gateway.observed_gateway import TIME, observed

pytestmark = [pytest.mark.process]


async def test_a_gateway_whose_servers_run_is_ok_until_it_closes() -> None:
    async with observed(TIME) as (gateway, _):
        running = gateway.health()
    assert running["status"] == "ok"
    assert running["servers"] == {"server0": {"state": "ready", "tools": 2}}
    assert gateway.health()["status"] == "closing"


async def test_a_server_that_fails_degrades_without_its_text() -> None:
    async with observed([sys.executable, "-c", "import sys; sys.exit('password-in-stderr')"]) as (gateway, _):
        found = gateway.health()
        problem = gateway.engine.servers_status()[0].problem
    assert found["status"] == "degraded"
    assert found["servers"]["server0"].keys() == {"state", "tools"}
    assert problem
    assert problem not in json.dumps(found)
    assert "password" not in json.dumps(found)
