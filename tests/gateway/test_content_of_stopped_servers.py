"""Requests for the resources and prompts of a server that does not run say so, and get nothing of another server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from callgate import Engine
from callgate.gateway import Gateway
from callgate.mcp import mcp
from tests.gateway.test_content_of_principals import ANN, SERVER, asked
from tests.waiting import until

pytestmark = pytest.mark.process


@pytest.mark.parametrize(("method", "params"), [("resources/read", {"uri": "shop://one"}), ("prompts/get", {"name": "ask"})])
async def test_a_server_that_does_not_start_is_named_with_the_reason(method: str, params: dict[str, str]) -> None:
    async with Gateway(Engine(servers=[mcp("no-such-program", name="shop")])) as gateway:
        await gateway.start()
        assert "there is no program 'no-such-program'" in await asked(gateway, ANN, method, **params)


async def test_a_resource_of_a_server_that_has_ended_is_not_read_from_another_one(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    shop = mcp([str(python), SERVER, "shop"], name="shop", isolation="shared")
    engine = Engine(servers=[shop, mcp([sys.executable, SERVER, "other"], name="other")])
    async with Gateway(engine) as gateway:
        await asked(gateway, ANN, "resources/list")
        assert "read by shop" in str(await asked(gateway, ANN, "resources/read", uri="shop://one"))
        python.unlink()
        await asked(gateway, ANN, "tools/call", name="shop_look", arguments={"exit": True})
        await until(lambda: "there is no program" in engine.servers_status()[0].problem)
        told = str(await asked(gateway, ANN, "resources/read", uri="shop://one"))
    assert "there is no program" in told
    assert "read by" not in told
