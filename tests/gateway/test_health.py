"""What anybody may know of a gateway's health."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from callgate import Engine
from callgate.gateway import Gateway
from callgate.plugins import plugin
from tests.gateway.observed_gateway import observed, time_server

pytestmark = [pytest.mark.process]


async def test_a_gateway_whose_servers_run_is_ok_until_it_closes() -> None:
    async with observed(time_server()) as (gateway, _):
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


async def test_a_plugin_that_its_first_call_will_start_is_no_fault() -> None:
    folder = Path(__file__).parents[2] / "examples/plugins/javascript"
    async with Gateway(Engine(servers=[plugin(folder)])) as gateway:
        found = gateway.health()
    assert found["servers"] == {"units": {"state": "idle", "tools": 2}}
    assert found["status"] == "ok"
