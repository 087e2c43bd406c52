"""A gateway in this process, with a client of each era and the real server mcp-server-time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from opentelemetry.trace import TracerProvider
from prometheus_client.parser import text_string_to_metric_families

from callgate import Engine, tool
from callgate.gateway import LOCAL, Gateway
from callgate.mcp import mcp
from tests.forked_programs import forked_program

__all__ = ["Client", "client_of", "observed", "samples", "time_server"]

_NUMBERS = count(1)


class Client:
    """A session of the handshake era; also the exchange of its requests."""

    def __init__(self, gateway: Gateway) -> None:
        self.front = gateway.handshake(LOCAL)

    def send(self, message: Mapping[str, Any]) -> bool:
        return True

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        message = {"jsonrpc": "2.0", "id": next(_NUMBERS), "method": method, "params": params}
        return await self.front.request(message, self)

    async def call(self, name: str, arguments: Mapping[str, Any], **more: Any) -> Any:
        return await self.request("tools/call", {"name": name, "arguments": arguments, **more})


async def client_of(gateway: Gateway) -> Client:
    client = Client(gateway)
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    await client.request("initialize", about)
    return client


def time_server() -> list[str]:
    """Return the command of mcp-server-time."""
    return forked_program("-m", "mcp_server_time")


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@asynccontextmanager
async def observed(*servers: list[str], tracer_provider: TracerProvider | None = None) -> AsyncIterator[tuple[Gateway, Client]]:
    """Serve `pay` and the tools of servers, which are called `server0` and so on."""
    upstream = [mcp(command, name=f"server{number}") for number, command in enumerate(servers)]
    async with Gateway(Engine([pay], servers=upstream), tracer_provider=tracer_provider) as gateway:
        client = await client_of(gateway)
        yield gateway, client
        await client.front.close()


def samples(gateway: Gateway) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the gateway's metrics, as a Prometheus server reads them."""
    families = text_string_to_metric_families(gateway.metrics().decode())
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}
