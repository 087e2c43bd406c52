"""What a call of an MCP server's tool costs through the engine, and what servers cost that nobody calls.

The server is one of the official SDK, over stdio.
"""

from __future__ import annotations

import asyncio
import sys
import time

from bench.mcp_client import SERVER, RawClient, need_sdk
from bench.measure import Counts, Row
from callgate import Engine, RawCall
from callgate.mcp import mcp

__all__ = ["IdleServers", "McpCalls", "StartedServers"]

_SERVERS = 10
_IDLE_S = 30.0


def _gateway() -> tuple[str, ...]:
    return (sys.executable, "-m", "bench.mcp_gateway", str(_SERVERS), *SERVER)


class McpCalls:
    """Wall time throughout: this is what a caller waits."""

    def __init__(self) -> None:
        self.over = Row("MCP server: a call over the same request of a raw client, wall, p50", unit="ms", most=0.5)
        self.whole = Row("MCP server: a call, wall, p50", unit="ms")
        self.rows = (self.over, self.whole)

    async def open(self, counts: Counts) -> None:
        need_sdk()
        self._engine = Engine(servers=[mcp(SERVER, name="bench", effects={"echo": "none"})], run="bench")
        self._raw = RawClient(SERVER, "stateless")
        self._raw.start()
        await self._call()

    async def round(self, counts: Counts) -> None:
        calls = sorted([await self._call() for _ in range(counts.tasks)])
        raw = sorted(self._raw.calls(1).wall_s * 1000 for _ in range(counts.tasks))
        self.whole.samples.append(calls[len(calls) // 2])
        self.over.samples.append(calls[len(calls) // 2] - raw[len(raw) // 2])

    async def close(self) -> None:
        await self._engine.close()
        self._raw.close()

    async def _call(self) -> float:
        """Milliseconds of one call."""
        began = time.perf_counter()
        await self._engine.call(RawCall(name="echo", arguments='{"text": "hello"}'))
        return (time.perf_counter() - began) * 1000


class IdleServers:
    """A gateway that nobody calls, with all its servers. Takes half a minute a round."""

    def __init__(self) -> None:
        self.share = Row(f"gateway with {_SERVERS} idle servers: CPU", unit="%", most=0.5)
        self.rows = (self.share,)

    async def open(self, counts: Counts) -> None:
        need_sdk()
        self._gateway = RawClient(_gateway(), "stateless")
        self._gateway.start()
        await asyncio.sleep(2.0)  # what the start has left behind

    async def round(self, counts: Counts) -> None:
        cpu_s, began = self._gateway.cpu_s(), time.perf_counter()
        await asyncio.sleep(_IDLE_S)
        self.share.samples.append(100 * (self._gateway.cpu_s() - cpu_s) / (time.perf_counter() - began))

    async def close(self) -> None:
        self._gateway.close()


class StartedServers:
    """How long a client waits for a gateway and its servers, which start at once, over the slowest of the same servers without it."""

    def __init__(self) -> None:
        self.over = Row(f"gateway: start with {_SERVERS} servers / the slowest of them alone, wall", note="all start at once in both")
        self.rows = (self.over,)

    async def open(self, counts: Counts) -> None:
        """A round starts everything itself."""
        need_sdk()

    async def round(self, counts: Counts) -> None:
        direct_s = _started_s(*[SERVER] * _SERVERS)
        self.over.ratio(_started_s(_gateway()), direct_s)

    async def close(self) -> None:
        """Do nothing."""


def _started_s(*commands: tuple[str, ...]) -> float:
    """Return the seconds until all of these programs have listed their tools."""
    began = time.perf_counter()
    clients = [RawClient(command, "stateless") for command in commands]
    for client in clients:
        client.start()
    took_s = time.perf_counter() - began
    for client in clients:
        client.close()
    return took_s
