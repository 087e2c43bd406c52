"""Two gateways on one journal in PostgreSQL: a client may reach either of them with each of its messages."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from callgate import Engine, PostgresJournal, UsageError, tool
from callgate.gateway import Gateway, GatewayLimits, Principal
from callgate.gateway._http import HttpApp, HttpServer
from callgate.gateway.tokens import StaticTokens
from callgate.mcp import mcp
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.process, pytest.mark.slow]

SECRET = b"a secret of all gateways together"
ASKING = str(Path(__file__).parents[1] / "asking_server.py")
PREFIX = "io.modelcontextprotocol/"
_CUT_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}


@asynccontextmanager
async def replica(name: str, database: str, tmp_path: Path, paid: list[int]) -> AsyncIterator[Gateway]:
    """Run a gateway; its address is `replicas.url`."""

    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return f"paid {amount}"

    server = mcp([sys.executable, ASKING, "handshake", str(tmp_path / f"log-{name}")], name="asking")
    engine = Engine([pay], servers=[server], journal=PostgresJournal(database))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    limits = GatewayLimits(task_after_s=0.1)
    gateway = Gateway(engine, secret=SECRET, replica=name, replica_url=url, limits=limits)
    tokens = StaticTokens({"secret": Principal(name="alice", approves=False)})
    async with gateway:
        app = HttpApp(gateway, tokens)
        async with HttpServer(app, port=port):
            yield gateway


@pytest.fixture
async def pair(database: str, tmp_path: Path) -> AsyncIterator[tuple[Gateway, Gateway, list[int]]]:
    paid: list[int] = []
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(replica("a", database, tmp_path, paid))
        other = await stack.enter_async_context(replica("b", database, tmp_path, paid))
        yield one, other, paid


async def post(gateway: Gateway, method: str, params: Mapping[str, Any], session: str = "", **more: Any) -> httpx2.Response:
    """Send a request: of a session if one is named or begun, otherwise of the stateless era."""
    headers = {"Authorization": "Bearer secret", "Accept": "application/json, text/event-stream"}
    if session:
        headers["Mcp-Session-Id"] = session
    elif method != "initialize":
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}, **more}
        params = {**params, "_meta": {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": capabilities}}
        headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": params.get("taskId") or params.get("name", "")}
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30) as client:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await client.post(f"{gateway.replicas.url}/mcp", json=message, headers=headers)


def text_of(response: httpx2.Response) -> str:
    text: str = response.json()["result"]["content"][0]["text"]
    return text


async def test_a_session_is_used_through_another_gateway(pair: tuple[Gateway, Gateway, list[int]]) -> None:
    one, other, _ = pair
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    session = (await post(one, "initialize", about)).headers["mcp-session-id"]
    for gateway in pair[:2]:
        listed = await post(gateway, "tools/list", {}, session)
        assert {"pay", "ask"} <= {tool["name"] for tool in listed.json()["result"]["tools"]}
    assert (await post(other, "tools/list", {}, session[:-3] + "AAA")).status_code == 404


async def test_a_request_that_waits_for_its_client_is_continued_through_another_gateway(pair: tuple[Gateway, Gateway, list[int]]) -> None:
    one, other, _ = pair
    call: dict[str, Any] = {"name": "ask", "arguments": {}}
    asked = (await post(one, "tools/call", call)).json()["result"]
    assert asked["resultType"] == "input_required"
    (key,) = asked["inputRequests"]
    answered = await post(other, "tools/call", {**call, "inputResponses": {key: ACCEPTED}, "requestState": asked["requestState"]})
    assert json.loads(text_of(answered)) == [ACCEPTED]


async def test_a_call_that_was_approved_runs_once_at_another_gateway(pair: tuple[Gateway, Gateway, list[int]]) -> None:
    one, other, paid = pair
    call = {"name": "pay", "arguments": {"amount": 5}}
    waiting = (await post(one, "tools/call", call)).json()["result"]
    await one.engine.approve(waiting["_meta"]["callgate/outcome"]["approval"], by="an operator")
    assert text_of(await post(other, "tools/call", call)).startswith("paid 5")
    assert paid == [5]
    assert (await post(one, "tools/call", call)).json()["result"]["isError"]
    assert paid == [5]


async def test_a_session_of_a_gateway_that_has_ended_is_refused_with_the_next_step(database: str, tmp_path: Path) -> None:
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    async with replica("a", database, tmp_path, []) as one:
        session = (await post(one, "initialize", about)).headers["mcp-session-id"]
    async with replica("b", database, tmp_path, []) as other:
        refused = await post(other, "tools/list", {}, session)
        called = await post(other, "tools/call", {"name": "pay", "arguments": {"amount": 5}}, session)
    assert (refused.status_code, called.status_code) == (502, 502)
    assert "Begin a new session" in refused.json()["error"]["message"]
    assert "The call was not sent to it and has not run." in called.json()["error"]["message"]


async def test_a_call_that_waited_for_its_client_at_a_gateway_that_has_ended_may_have_taken_effect(database: str, tmp_path: Path) -> None:
    call: dict[str, Any] = {"name": "ask", "arguments": {}}
    async with replica("a", database, tmp_path, []) as one:
        asked = (await post(one, "tools/call", call)).json()["result"]
    (key,) = asked["inputRequests"]
    async with replica("b", database, tmp_path, []) as other:
        answered = await post(other, "tools/call", {**call, "inputResponses": {key: ACCEPTED}, "requestState": asked["requestState"]})
    assert "The call may have taken effect: its outcome is in the journal." in answered.json()["error"]["message"]


async def test_a_task_is_asked_for_at_another_gateway_and_continues_there_when_its_own_has_ended(database: str, tmp_path: Path) -> None:
    extensions: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
    call = {"name": "pay", "arguments": {"amount": 5}}
    paid: list[int] = []

    async def told(gateway: Gateway, task: str) -> dict[str, Any]:
        found: dict[str, Any] = (await post(gateway, "tasks/get", {"taskId": task}, extensions=extensions)).json()["result"]
        return found

    async with replica("b", database, tmp_path, paid) as other:
        async with replica("a", database, tmp_path, paid) as one:
            task = (await post(one, "tools/call", call, extensions=extensions)).json()["result"]["taskId"]
            for gateway in (one, other):
                while "statusMessage" not in (waiting := await told(gateway, task)):
                    await asyncio.sleep(0.01)
                assert waiting["status"] == "working"
        approval = waiting["statusMessage"].split("approval ")[1].split(")")[0]
        assert (await told(other, task))["status"] == "working"
        await until_held_here(other, approval)
        while (ended := await told(other, task))["status"] == "working":
            await asyncio.sleep(0.01)
    assert ended["result"]["content"][0]["text"].startswith("paid 5")
    assert paid == [5]


async def test_a_call_becomes_a_task_only_when_it_is_on_record_so_that_another_gateway_knows_it(database: str, tmp_path: Path) -> None:
    extensions: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
    async with replica("b", database, tmp_path, []) as other:
        async with replica("a", database, tmp_path, []) as one:
            async with await psycopg.AsyncConnection.connect(database) as connection:
                await connection.execute("LOCK TABLE callgate.events IN EXCLUSIVE MODE")  # reads go on
                call = post(one, "tools/call", {"name": "pay", "arguments": {"amount": 5}}, extensions=extensions)
                begun = asyncio.ensure_future(call)
                answered, _ = await asyncio.wait((begun,), timeout=1.0)
                assert not answered
            task = (await begun).json()["result"]
            while "statusMessage" not in (await post(one, "tasks/get", {"taskId": task["taskId"]}, extensions=extensions)).json()["result"]:
                await asyncio.sleep(0.01)
        told = (await post(other, "tasks/get", {"taskId": task["taskId"]}, extensions=extensions)).json()
    assert told["result"]["status"] == "working"


async def test_a_task_is_cancelled_when_that_is_on_record_and_says_whether_its_call_has_run(database: str, tmp_path: Path) -> None:
    """Also if the client that has cancelled it has gone before; until then it goes on for those who ask or listen."""
    extensions: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
    paid: list[int] = []
    async with replica("a", database, tmp_path, paid) as one:
        begun = await post(one, "tools/call", {"name": "pay", "arguments": {"amount": 5}}, extensions=extensions)
        task = {"taskId": begun.json()["result"]["taskId"]}
        while "statusMessage" not in (waiting := (await post(one, "tasks/get", task, extensions=extensions)).json()["result"]):
            await asyncio.sleep(0.01)
        approval = waiting["statusMessage"].split("approval ")[1].split(")")[0]
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await connection.execute("LOCK TABLE callgate.events")
            cancelling = asyncio.ensure_future(post(one, "tasks/cancel", task, extensions=extensions))
            await until(lambda: b"callgate_tasks_running 0.0" in one.metrics())
            cancelling.cancel()
            await asyncio.wait((cancelling,))
        while (told := (await post(one, "tasks/get", task, extensions=extensions)).json()["result"])["status"] != "cancelled":
            await asyncio.sleep(0.01)
        assert (told["statusMessage"], told["_meta"]["callgate/outcome"]["failure"]) == ("The call has not run.", "not_started")
        with pytest.raises(UsageError):
            await one.engine.approve(approval, by="an operator")
    assert paid == []


async def test_a_call_that_was_not_submitted_when_the_gateway_stopped_is_told_as_not_run(database: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack, await psycopg.AsyncConnection.connect(database) as connection:
        one = await stack.enter_async_context(replica("a", database, tmp_path, []))
        await connection.execute("LOCK TABLE callgate.events")
        call = asyncio.ensure_future(post(one, "tools/call", {"name": "pay", "arguments": {"amount": 5}}))
        await until(lambda: b"callgate_calls_running 1.0" in one.metrics())
        stopping = asyncio.ensure_future(stack.aclose())
        told = (await call).json()
        await connection.rollback()
        await stopping
    assert told["result"]["_meta"]["callgate/outcome"]["failure"] == "not_started"
    assert "The call has not run" in told["result"]["content"][0]["text"]


async def until_held_here(gateway: Gateway, approval: str) -> None:
    """Approve a call as soon as the lease of the gateway that has ended is free."""
    while True:
        try:
            await gateway.engine.approve(approval, by="an operator")
            return
        except UsageError:
            await asyncio.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_task_has_not_failed_because_its_gateway_has_lost_the_database(database: str, tmp_path: Path) -> None:
    """Its call may still run. The client is not told where the database is."""
    extensions: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
    async with replica("a", database, tmp_path, []) as one:
        begun = await post(one, "tools/call", {"name": "pay", "arguments": {"amount": 5}}, extensions=extensions)
        task = {"taskId": begun.json()["result"]["taskId"]}
        while "statusMessage" not in (await post(one, "tasks/get", task, extensions=extensions)).json()["result"]:
            await asyncio.sleep(0.01)
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            await connection.execute(_CUT_OTHERS)
        await until(lambda: b"callgate_tasks_running 0.0" in one.metrics())
        told = [await post(one, "tasks/get", task, extensions=extensions) for _ in range(5)]
    async with replica("b", database, tmp_path, []) as other:
        elsewhere = (await post(other, "tasks/get", task, extensions=extensions)).json()["result"]
    assert {one.json()["result"]["status"] for one in told} == {elsewhere["status"]} == {"working"}
    assert "postgresql" not in "".join(one.text for one in told)


async def test_metrics_are_shown_while_the_database_does_not_answer(database: str, tmp_path: Path) -> None:
    async with replica("a", database, tmp_path, []) as one, await psycopg.AsyncConnection.connect(database) as connection:
        await connection.execute("LOCK TABLE callgate.events")
        await asyncio.wait_for(one.refresh_metrics(), PATIENCE_S)
        assert b"callgate_calls_running 0.0" in one.metrics()
        await connection.rollback()
