"""A small front over real uvicorn on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx2
import pytest

from callgate.gateway._exchange import Exchange
from callgate.gateway._http import HttpApp, HttpLimits, HttpServer
from callgate.gateway._requests.replicas import Replicas
from callgate.gateway._requests.request_states import RequestStates
from callgate.gateway.principals import Principal
from callgate.gateway.tokens import StaticTokens
from callgate.mcp._connection import Message

TOKEN, OTHER_TOKEN = "token-of-alice", "token-of-bob"


class EchoFront:
    """Answers `echo` with its params, `talk` with a message first, `wait` never; knows no other method."""

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen
        self.cancelled = asyncio.Event()
        self.started = asyncio.Event()

    async def request(self, message: Mapping[str, Any], exchange: Exchange) -> Message | None:
        method = message["method"]
        if method == "talk":
            exchange.send({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        if method == "initialize":
            return {"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "2025-11-25"}}
        if method == "wait":
            self.started.set()
            await self.cancelled.wait()
        if method not in ("echo", "talk", "tools/call"):
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}}
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"params": message.get("params")}}

    def notification(self, message: Mapping[str, Any]) -> None:
        self._seen.append(message["method"])

    def response(self, message: Mapping[str, Any]) -> None:
        self._seen.append("response")

    def use_principal(self, principal: Principal) -> None:
        self._seen.append(f"as {principal.name}")

    async def close(self) -> None:
        self._seen.append("closed")
        self.cancelled.set()


class EchoFronts:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.front = EchoFront(self.seen)
        self.events: list[Exchange] = []
        """Where messages of the sessions go that belong to no request."""
        self.replicas = Replicas("", RequestStates(None))

    def handshake(self, principal: Principal, events: Exchange | None = None) -> EchoFront:
        self.events += [] if events is None else [events]
        return self.front

    def stateless(self, principal: Principal) -> EchoFront:
        return self.front

    def end_subscriptions(self) -> None:
        self.seen.append("ended")

    def end_tasks(self, ended: Callable[[str], bool]) -> None:
        self.seen.append("tasks ended")

    async def start(self) -> None:
        pass

    def header_params(self, tool: str) -> Mapping[str, Sequence[str]]:
        return {"Region": ["region"], "Count": ["count"]}

    def health(self) -> Mapping[str, Any]:
        return {"status": "ok"}

    def metrics(self) -> bytes:
        return b"calls 1\n"

    async def refresh_metrics(self) -> None:
        pass


@pytest.fixture
def fronts() -> EchoFronts:
    return EchoFronts()


@pytest.fixture
async def server(fronts: EchoFronts) -> AsyncIterator[HttpServer]:
    tokens = StaticTokens({TOKEN: Principal(name="alice"), OTHER_TOKEN: Principal(name="bob")})
    limits = HttpLimits(head_timeout_s=2.0, sessions_per_principal=2)
    app = HttpApp(
        fronts,
        tokens,
        limits=limits,
    )
    async with HttpServer(app) as running:
        yield running


@pytest.fixture
async def client(server: HttpServer) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", headers=headers) as made:
        yield made
