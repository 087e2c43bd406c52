"""What a client leaves with the gateway for as long as its session or stream lasts is bounded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.gateway.raw_client import Era, RawClient, raw_client, served

pytestmark = [pytest.mark.process]

SHOP = [sys.executable, str(Path(__file__).with_name("content_server.py")), "shop"]
LONG = "shop://" + "x" * 8_192


async def refused(client: RawClient, method: str, params: dict[str, Any]) -> str:
    error = (await client.request(method, params))["error"]
    assert error["code"] == -32602
    return str(error["message"])


async def test_a_session_is_told_of_a_thousand_resources_at_most() -> None:
    async with raw_client(served(servers=[SHOP]), "handshake") as client:
        for number in range(1_000):
            assert "result" in await client.request("resources/subscribe", {"uri": f"shop://{number}"})
        assert "result" in await client.request("resources/subscribe", {"uri": "shop://0"})
        assert "1000 resources" in await refused(client, "resources/subscribe", {"uri": "shop://one more"})
        await client.request("resources/unsubscribe", {"uri": "shop://7"})
        assert "result" in await client.request("resources/subscribe", {"uri": "shop://one more"})


@pytest.mark.parametrize("era", get_args(Era))
async def test_the_uri_of_a_resource_whose_changes_are_told_is_not_longer_than_the_limit(era: Era) -> None:
    asked: dict[Era, tuple[str, dict[str, Any]]] = {
        "handshake": ("resources/subscribe", {"uri": LONG}),
        "stateless": ("subscriptions/listen", {"notifications": {"resourceSubscriptions": [LONG]}}),
    }
    async with raw_client(served(servers=[SHOP]), era) as client:
        assert "8199 characters" in await refused(client, *asked[era])


async def test_a_session_does_not_begin_with_capabilities_larger_than_the_limit() -> None:
    about = {"protocolVersion": "2025-11-25", "capabilities": {"experimental": {"x": "y" * 65_536}}}
    async with raw_client(served(), "stateless") as client:
        client.era = "handshake"
        assert "65536 bytes" in await refused(client, "initialize", about)


@pytest.mark.parametrize("level", ["loud", ["debug"], None], ids=["unknown", "a list", "none"])
async def test_a_level_of_log_messages_that_does_not_exist_is_refused_with_the_levels(level: object) -> None:
    async with raw_client(served(), "handshake") as client:
        assert "the levels are alert, critical, debug" in await refused(client, "logging/setLevel", {"level": level})
