"""What clients have begun at a server goes on at the one that replaces it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, UsageError
from callgate.gateway import LOCAL, Gateway
from callgate.mcp import McpServer, mcp
from tests.engine_calls import call, said
from tests.mcp import fake_server
from tests.mcp.fakes import ANSWER, Fake
from tests.test_changed_servers import is_running
from tests.waiting import until

pytestmark = pytest.mark.process

_SERVER = str(Path(__file__).with_name("content_server.py"))
_META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
_ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


class Told:
    """What a client is sent beside the responses."""

    def __init__(self) -> None:
        self.messages: list[Mapping[str, Any]] = []

    def send(self, message: Mapping[str, Any]) -> bool:
        self.messages.append(message)
        return True

    @property
    def updates(self) -> int:
        return sum(one["method"] == "notifications/resources/updated" for one in self.messages)


def served(command: list[str] | None = None) -> McpServer:
    return mcp(command or [sys.executable, _SERVER, "pub"], name="pub")


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def test_clients_of_both_eras_are_told_of_changes_of_a_resource_after_its_server_was_replaced() -> None:
    old, new = Told(), Told()
    async with Gateway(Engine(servers=[served()])) as gateway:
        session = gateway.handshake(LOCAL, old)
        await session.request(request(1, "initialize", **_ABOUT), old)
        answer = await session.request(request(2, "resources/subscribe", uri="pub://one"), old)
        assert answer is not None
        assert "result" in answer
        wanted = {"resourceSubscriptions": ["pub://one"]}
        listening = asyncio.ensure_future(
            gateway.stateless(LOCAL).request(request(1, "subscriptions/listen", notifications=wanted, _meta=_META), new)
        )
        await until(lambda: new.messages)
        await gateway.engine.call(call("pub_look"))
        await until(lambda: old.updates == new.updates == 1)
        await gateway.change_servers(add=[served()], remove=["pub"])
        await until(lambda: old.updates == new.updates == 2)  # it may have changed meanwhile
        await gateway.engine.call(call("pub_look"))
        await until(lambda: old.updates == new.updates == 3)
        await gateway.change_servers(remove=["pub"])
        await session.close()
        gateway.end_subscriptions()
        await listening


async def test_a_subscription_goes_on_when_the_server_that_replaces_another_starts_late(tmp_path: Path) -> None:
    told, tried, go = Told(), tmp_path / "tried", tmp_path / "go"
    late = ["sh", "-c", f"echo >> {tried}; test -e {go} && exec {sys.executable} {_SERVER} pub"]
    async with Gateway(Engine(servers=[served()])) as gateway:
        session = gateway.handshake(LOCAL, told)
        await session.request(request(1, "initialize", **_ABOUT), told)
        await session.request(request(2, "resources/subscribe", uri="pub://one"), told)
        changing = asyncio.ensure_future(gateway.change_servers(add=[served(late)], remove=["pub"]))
        await until(tried.exists)
        go.touch()
        await changing
        await until(lambda: told.updates == 1)
        await until(lambda: "pub_look" in gateway.engine.tools.names())
        await gateway.engine.call(call("pub_look"))
        await until(lambda: told.updates == 2)
        await session.close()


async def test_a_running_call_of_a_replaced_server_does_not_delay_the_change_and_may_still_end(tmp_path: Path) -> None:
    before = Fake(tmp_path, {"until_cancelled": True})
    (tmp_path / "after").mkdir()
    after = Fake(tmp_path / "after", ANSWER)
    async with Gateway(Engine(servers=[before.server()])) as gateway:
        running = asyncio.ensure_future(gateway.engine.call(call("work"), Scope(conversation="c")))
        await until(before.calls)
        await gateway.change_servers(add=[after.server()], remove=["fake"])
        assert not running.done()
        assert (await said(gateway.engine, call("work"))).text == "done"
        gateway.engine.control.kill("c")
        await running
        await until(lambda: not is_running(before.pids[0]))


async def test_a_server_that_cannot_run_beside_the_one_that_it_replaces_is_waited_for(tmp_path: Path) -> None:
    lock, fake = tmp_path / "lock", Fake(tmp_path, ANSWER)
    command = [sys.executable, fake_server.__file__, str(fake.script), str(fake.log)]
    locked = mcp(["flock", "--nonblock", str(lock), *command], name="fake")
    async with Gateway(Engine(servers=[locked])) as gateway:
        await gateway.change_servers(add=[locked], remove=["fake"])
        assert gateway.health()["status"] == "ok"
        assert (await said(gateway.engine, call("work"))).text == "done"


async def test_after_a_refused_change_each_change_of_a_resource_is_told_once() -> None:
    told = Told()
    async with Gateway(Engine(servers=[served()])) as gateway:
        session = gateway.handshake(LOCAL, told)
        await session.request(request(1, "initialize", **_ABOUT), told)
        await session.request(request(2, "resources/subscribe", uri="pub://one"), told)
        with pytest.raises(UsageError, match="there is no program"):
            await gateway.change_servers(add=[served(), mcp("no-such-program-here", name="dead", required=True)], remove=["pub"])
        await gateway.engine.call(call("pub_look"))
        assert told.updates == 1
        await session.close()
