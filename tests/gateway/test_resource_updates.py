"""What a server says of a changed resource reaches the clients that want to know."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from callgate import Engine
from callgate.gateway import Gateway, Principal
from callgate.gateway._fronts.handshake import HandshakeSession
from callgate.mcp import McpServer, mcp
from tests.cli.shell import command
from tests.gateway.raw_client import Era, RawClient, raw_client
from tests.gateway.test_replaced_servers import Told, request
from tests.mcp.calling_clients import ELICITS
from tests.mcp.fakes import Fake
from tests.mcp.npm_servers import npm_server
from tests.waiting import until

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


@pytest.mark.parametrize("capabilities", [{}, ELICITS], ids=["", "asked"])  # the latter has a session of its own with the server
@pytest.mark.parametrize("era", get_args(Era))
async def test_all_that_a_server_says_of_a_changed_resource_is_passed_on_without_secrets(
    era: Era, capabilities: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATOR_SECRET", SECRET)
    words = json.dumps([sys.executable, SERVER, "shop", json.dumps(SAID)])
    (tmp_path / "gate.toml").write_text(
        f'journal = ":memory:"\nredact_env = ["OPERATOR_SECRET"]\n[servers.shop]\ncommand = {words}\n', encoding="utf-8"
    )
    async with raw_client(list(command(("serve", "--config", str(tmp_path / "gate.toml")))), era, capabilities) as client:
        params = await updated(client)
    meta = params.pop("_meta")
    assert params == {"uri": "shop://one", "title": "One", "own": {"b": 1, "a": "***"}}
    assert list(params["own"]) == ["b", "a"]
    assert meta.pop("example/why") == 1
    assert meta.keys() == ({SUBSCRIPTION} if era == "stateless" else set())
    assert meta.get(SUBSCRIPTION) != "of the gateway"


@pytest.mark.parametrize("part", ["shop://one/part", "shop://one#part", "shop://one?part=1"])
@pytest.mark.parametrize("era", get_args(Era))
async def test_a_change_of_a_part_of_a_resource_is_told(era: Era, part: str, tmp_path: Path) -> None:
    words = json.dumps([sys.executable, SERVER, "shop", json.dumps({"uri": part})])
    (tmp_path / "gate.toml").write_text(f'journal = ":memory:"\n[servers.shop]\ncommand = {words}\n', encoding="utf-8")
    async with raw_client(list(command(("serve", "--config", str(tmp_path / "gate.toml")))), era, {}) as client:
        assert (await updated(client))["uri"] == part


def shop(**options: Any) -> McpServer:
    return mcp([sys.executable, SERVER, "shop"], name="shop", effects={"shop_look": "none"}, **options)


async def subscribed(gateway: Gateway, name: str) -> tuple[HandshakeSession, Told]:
    """Return a new session of a principal that has subscribed to a resource."""
    told = Told()
    session = gateway.handshake(Principal(name=name), told)
    await session.request(request(1, "initialize", protocolVersion="2025-11-25", capabilities=ELICITS), told)
    assert await session.request(request(2, "resources/subscribe", uri="shop://one"), told) == {"jsonrpc": "2.0", "id": 2, "result": {}}
    return session, told


async def look(session: HandshakeSession) -> None:
    answer = await session.request(request(3, "tools/call", name="shop_look", arguments={}), Told())
    assert answer is not None
    assert "result" in answer


async def test_only_the_client_is_told_in_whose_session_a_resource_has_changed() -> None:
    async with Gateway(Engine(servers=[shop()])) as gateway:
        ann, told_ann = await subscribed(gateway, "ann")
        bob, told_bob = await subscribed(gateway, "bob")
        await look(ann)
        await until(lambda: told_ann.updates)
        await look(bob)
        await until(lambda: told_bob.updates)
        await ann.request(request(4, "resources/unsubscribe", uri="shop://one"), Told())
        await look(ann)
        await look(bob)
        await until(lambda: told_bob.updates == 2)
        assert told_ann.updates == 1
        await bob.close()
        await ann.close()


async def test_a_session_with_a_subscription_stays_open_while_it_is_not_used() -> None:
    async with Gateway(Engine(servers=[shop(session_idle_s=0.05)])) as gateway:
        ann, told = await subscribed(gateway, "ann")
        other = gateway.handshake(Principal(name="ann"), told)
        await other.request(request(1, "initialize", protocolVersion="2025-11-25", capabilities=ELICITS), told)
        await gateway.engine.clock.sleep(0.5)
        await look(other)
        await until(lambda: told.updates)
        await ann.close()


async def test_subscriptions_leave_sessions_for_the_calls_of_others() -> None:
    async with Gateway(Engine(servers=[shop(max_sessions=2)])) as gateway:
        ann, told = await subscribed(gateway, "ann")
        others = [(await subscribed(gateway, name))[0] for name in ("bob", "cid", "dan")]
        for session in (*others, ann):
            await look(session)
        await until(lambda: told.updates)
        for session in (*others, ann):
            await session.close()


async def test_equal_subscriptions_that_arrive_together_are_one() -> None:
    async with Gateway(Engine(servers=[shop()])) as gateway:
        ann, told = await subscribed(gateway, "ann")
        wanted = [request(number, "resources/subscribe", uri="shop://two") for number in (4, 5, 6)]
        await asyncio.gather(*(ann.request(one, told) for one in wanted))
        await look(ann)
        await ann.request(request(7, "resources/unsubscribe", uri="shop://two"), told)
        await look(ann)
        await ann.close()
    assert [one["params"]["uri"] for one in told.messages] == ["shop://one", "shop://two", "shop://one"]


async def test_a_subscription_that_its_client_ends_at_once_is_ended() -> None:
    async with Gateway(Engine(servers=[shop()])) as gateway:
        ann, told = await subscribed(gateway, "ann")
        begins = request(4, "resources/subscribe", uri="shop://two")
        await asyncio.gather(ann.request(begins, told), ann.request(request(5, "resources/unsubscribe", uri="shop://two"), told))
        await look(ann)
        await ann.close()
    assert [one["params"]["uri"] for one in told.messages] == ["shop://one"]


async def test_a_principal_that_has_lost_a_server_is_told_nothing_of_its_resources() -> None:
    async with Gateway(Engine(servers=[shop(isolation="shared")])) as gateway:
        ann, told_ann = await subscribed(gateway, "ann")
        bob, told_bob = await subscribed(gateway, "bob")
        gateway.use_principals([Principal(name="ann", servers=()), Principal(name="bob")])
        await look(bob)
        gateway.use_principals([Principal(name="ann"), Principal(name="bob")])
        await look(bob)
        await ann.close()
        await bob.close()
    assert (told_ann.updates, told_bob.updates) == (1, 2)


@pytest.mark.slow
async def test_a_session_ends_although_a_server_does_not_confirm_the_end_of_its_subscriptions(tmp_path: Path) -> None:
    fake = Fake(
        tmp_path,
        era="handshake",
        capabilities={"resources": {"subscribe": True}},
        answers={"resources/subscribe": {"result": {}}},
        hang_on="resources/unsubscribe",
    )
    told = Told()
    async with Gateway(Engine(servers=[fake.server()])) as gateway:
        ann = gateway.handshake(Principal(name="ann"), told)
        await ann.request(request(1, "initialize", protocolVersion="2025-11-25", capabilities={}), told)
        for number in range(20):
            await ann.request(request(number, "resources/subscribe", uri=f"a://{number}"), told)
        async with asyncio.timeout(60):
            await ann.close()


@pytest.mark.slow
@pytest.mark.parametrize("era", get_args(Era))
async def test_a_real_server_tells_a_client_of_the_changes_that_its_call_begins(era: Era, tmp_path: Path) -> None:
    server = npm_server("@modelcontextprotocol/server-everything@2026.8.31")
    (tmp_path / "gate.toml").write_text(
        f'journal = ":memory:"\n[servers.everything]\ncommand = {json.dumps(["node", str(server), "stdio"])}\n', encoding="utf-8"
    )
    uri = "demo://resource/dynamic/text/1"
    async with raw_client(list(command(("serve", "--config", str(tmp_path / "gate.toml")))), era, ELICITS) as client:
        if era == "handshake":
            await client.request("resources/subscribe", {"uri": uri})
        else:
            client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
        await client.request("tools/call", {"name": "toggle-subscriber-updates", "arguments": {}})
        while (message := await client.next_message())["method"] != "notifications/resources/updated":
            pass
        assert message["params"]["uri"] == uri
