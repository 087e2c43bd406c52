"""What a server says of a changed resource reaches the clients that want to know."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.cli.shell import command
from tests.gateway.raw_client import Era, RawClient, raw_client

pytestmark = [pytest.mark.process]

SERVER = str(Path(__file__).with_name("content_server.py"))
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
SECRET = "a-secret-of-the-operator"
SAID = {"title": "One", "own": {"b": 1, "a": SECRET}, "_meta": {"example/why": 1, SUBSCRIPTION: "of the gateway"}}


async def updated(client: RawClient) -> dict[str, Any]:
    """Subscribe to a resource, let the server change it, and return the params of the notification."""
    if client.era == "handshake":
        await client.request("resources/subscribe", {"uri": "shop://one"})
    else:
        client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["shop://one"]}})
        await client.next_message()
    while True:
        await client.request("tools/call", {"name": "shop_look", "arguments": {}})
        while not client.messages.empty():
            message = await client.next_message()
            if message["method"] == "notifications/resources/updated":
                params: dict[str, Any] = message["params"]
                return params


@pytest.mark.parametrize("era", get_args(Era))
async def test_all_that_a_server_says_of_a_changed_resource_is_passed_on_without_secrets(
    era: Era, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATOR_SECRET", SECRET)
    words = json.dumps([sys.executable, SERVER, "shop", json.dumps(SAID)])
    (tmp_path / "gate.toml").write_text(
        f'journal = ":memory:"\nredact_env = ["OPERATOR_SECRET"]\n[servers.shop]\ncommand = {words}\n', encoding="utf-8"
    )
    async with raw_client(list(command(("serve", "--config", str(tmp_path / "gate.toml")))), era) as client:
        params = await updated(client)
    meta = params.pop("_meta")
    assert params == {"uri": "shop://one", "title": "One", "own": {"b": 1, "a": "***"}}
    assert list(params["own"]) == ["b", "a"]
    assert meta.pop("example/why") == 1
    assert meta.keys() == ({SUBSCRIPTION} if era == "stateless" else set())
    assert meta.get(SUBSCRIPTION) != "of the gateway"
