"""The resources and prompts of a server are for those who may use it, as its tools are."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine
from callgate.gateway import Gateway, Principal
from callgate.mcp import mcp
from tests.mcp.fakes import Fake

pytestmark = pytest.mark.process

SERVER = str(Path(__file__).with_name("content_server.py"))
ANN = Principal(name="ann")
PUB = Principal(name="pub", tools=("pub_*",))
NOBODY = Principal(name="nobody", tools=())
NAMED = Principal(name="named", tools=(), servers=("pri*",))


class NoExchange:
    def send(self, message: Mapping[str, Any]) -> bool:
        return False


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    servers = [mcp([sys.executable, SERVER, name], name=name) for name in ("private", "pub")]
    async with Gateway(Engine(servers=servers)) as running:
        yield running


async def asked(gateway: Gateway, principal: Principal, method: str, **params: Any) -> Any:
    """Return the result of a request of a stateless client, or the message of its error."""
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    response = await gateway.stateless(principal).request(message, NoExchange())
    assert response is not None
    return response["result"] if "result" in response else response["error"]["message"]


async def listed(gateway: Gateway, principal: Principal) -> tuple[list[str], list[str], list[str]]:
    """Return the resources, the templates and the prompts of a principal."""
    found = await asked(gateway, principal, "resources/list")
    templates = await asked(gateway, principal, "resources/templates/list")
    prompts = await asked(gateway, principal, "prompts/list")
    return (
        [one["uri"] for one in found["resources"]],
        [one["uriTemplate"] for one in templates["resourceTemplates"]],
        [one["name"] for one in prompts["prompts"]],
    )


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        (ANN, (["private://one", "pub://one"], ["private://{id}", "pub://{id}"], ["ask", "pub.ask"])),
        (PUB, (["pub://one"], ["pub://{id}"], ["ask"])),
        (NAMED, (["private://one"], ["private://{id}"], ["ask"])),
        (NOBODY, ([], [], [])),
    ],
    ids=["ann", "pub", "named", "nobody"],
)
async def test_a_principal_sees_what_the_servers_have_that_it_may_use(
    gateway: Gateway, principal: Principal, expected: tuple[list[str], list[str], list[str]]
) -> None:
    assert await listed(gateway, principal) == expected
    discovered = (await asked(gateway, principal, "server/discover"))["capabilities"]
    assert ("resources" in discovered) is bool(expected[0])


async def test_a_principal_reads_nothing_of_a_server_that_it_may_not_use(gateway: Gateway) -> None:
    await listed(gateway, ANN)
    for principal, served in ((ANN, "private"), (PUB, "pub")):
        read = await asked(gateway, principal, "resources/read", uri="private://one")
        assert read["contents"][0]["text"] == f"read by {served}"
        ref = {"type": "ref/resource", "uri": "private://{id}"}
        completed = await asked(gateway, principal, "completion/complete", ref=ref, argument={"name": "id", "value": ""})
        assert completed["completion"]["values"] == [served]
    assert await asked(gateway, NOBODY, "resources/read", uri="private://one") == "No server here has resources."
    assert await asked(gateway, NOBODY, "prompts/get", name="ask") == "No server here has prompts."


async def test_the_server_that_has_a_template_completes_its_arguments(gateway: Gateway) -> None:
    for uri, served in (("pub://{id}", "pub"), ("private://{id}", "private"), ("pub://unknown", "private")):
        ref = {"type": "ref/resource", "uri": uri}
        completed = await asked(gateway, ANN, "completion/complete", ref=ref, argument={"name": "id", "value": ""})
        assert completed["completion"]["values"] == [served]
    await listed(gateway, ANN)
    ref = {"type": "ref/resource", "uri": "pub://one"}
    completed = await asked(gateway, ANN, "completion/complete", ref=ref, argument={"name": "id", "value": ""})
    assert completed["completion"]["values"] == ["pub"]


async def test_a_prompt_has_the_name_that_its_principal_sees_whatever_others_see(gateway: Gateway) -> None:
    for _ in range(2):
        for principal, name, served in ((ANN, "ask", "private"), (PUB, "ask", "pub"), (ANN, "pub.ask", "pub")):
            await asked(gateway, principal, "prompts/list")
            found = await asked(gateway, PUB if principal is ANN else ANN, "prompts/list")
            assert found["prompts"]
            given = await asked(gateway, principal, "prompts/get", name=name)
            assert given["messages"][0]["content"]["text"] == f"asked by {served}"


async def test_of_two_resources_with_one_uri_clients_get_that_of_the_first_server_and_the_operator_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = [mcp([sys.executable, SERVER, "same"], name=name) for name in ("first", "second")]
    async with Gateway(Engine(servers=servers)) as gateway:
        for _ in range(2):
            found = await asked(gateway, ANN, "resources/list")
    assert [one["uri"] for one in found["resources"]] == ["same://one"]
    warnings = [one.getMessage() for one in caplog.records if "same://one" in one.getMessage()]
    assert len(warnings) == 1
    assert "first and second both have the resource same://one" in warnings[0]
    assert "clients get that of first" in warnings[0]


async def test_a_subscription_is_about_a_server_that_the_principal_may_use(gateway: Gateway) -> None:
    session = gateway.handshake(NOBODY)
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    await session.request({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}, NoExchange())
    subscribe = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": "private://one"}}
    response = await session.request(subscribe, NoExchange())
    assert response is not None
    assert "error" in response
    await session.close()


async def test_a_cache_that_several_principals_share_keeps_nothing(tmp_path: Path) -> None:
    """A server does not know which principals may use it."""
    result = {"contents": [], "ttlMs": 60_000, "cacheScope": "public"}
    fake = Fake(tmp_path, era="stateless", capabilities={"resources": {}}, answers={"resources/read": {"result": result}})
    async with Gateway(Engine(servers=[fake.server()])) as gateway:
        read = await asked(gateway, ANN, "resources/read", uri="a://b")
    assert (read["ttlMs"], read["cacheScope"]) == (60_000, "private")
