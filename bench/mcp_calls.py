"""What a call of an MCP server's tool costs through the engine, and through the gateway, over the same call of the server itself.

The server is one of the official SDK, over stdio. CPU times are those of the whole server side: the gateway's process with its children.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from bench.mcp_client import SERVER, Era, RawClient, Took, need_sdk
from bench.measure import Counts, Row
from callgate import Engine, RawCall
from callgate.mcp import mcp

__all__ = ["FastMcpCalls", "GatewayCalls", "IdleServers", "McpCalls", "StartedServers"]

_AT_ONCE: dict[Era, tuple[int, ...]] = {"stateless": (1, 16, 64), "handshake": (1, 64)}
_MOST_OVER_MS = 0.5
_MOST_SLOWER = 1 / 0.6
_SERVERS = 10
_IDLE_S = 30.0


def _gateway(journal: str = "memory", servers: int = 1) -> tuple[str, ...]:
    return (sys.executable, "-m", "bench.mcp_gateway", journal, str(servers), *SERVER)


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


class _Comparison:
    """The rows of one gateway in front of the server, for one era of clients."""

    def __init__(self, name: str, era: Era, *, most: bool) -> None:
        self.over = {
            count: Row(f"{name}, {era}, {count} at once: CPU over direct", unit="ms", most=_MOST_OVER_MS if most else None)
            for count in _AT_ONCE[era]
        }
        self.slower = Row(f"{name}, {era}, 64 at once: direct throughput / its own", most=_MOST_SLOWER if most else None)
        self.rows = (*self.over.values(), self.slower)

    def take(self, at_once: int, ours: Took, direct: Took) -> None:
        row = self.over[at_once]
        row.samples.append((ours.cpu_s - direct.cpu_s) * 1000)
        row.ours_us.append(ours.cpu_s * 1e6)
        row.floor_us.append(direct.cpu_s * 1e6)
        if at_once == 64:
            self.slower.ratio(ours.wall_s, direct.wall_s)


class GatewayCalls:
    """Both eras of clients, with a journal in memory and in a file. Every call has an effect, so a file has two commits of it."""

    def __init__(self) -> None:
        self._compared: dict[tuple[str, Era], _Comparison] = {
            ("memory", "stateless"): _Comparison("gateway", "stateless", most=True),
            ("memory", "handshake"): _Comparison("gateway", "handshake", most=True),
            ("file", "stateless"): _Comparison("gateway with a durable record", "stateless", most=False),
        }
        self.rows = tuple(row for compared in self._compared.values() for row in compared.rows)

    async def open(self, counts: Counts) -> None:
        need_sdk()
        self._folder = tempfile.TemporaryDirectory()
        paths = {"memory": "memory", "file": str(Path(self._folder.name) / "journal.db")}
        eras: tuple[Era, ...] = ("stateless", "handshake")
        self._direct = {era: RawClient(SERVER, era) for era in eras}
        self._gateways = {(journal, era): RawClient(_gateway(paths[journal]), era) for journal, era in self._compared}
        for client in (*self._direct.values(), *self._gateways.values()):
            client.start()
            client.calls(min(100, counts.tasks))

    async def round(self, counts: Counts) -> None:
        for era, direct in self._direct.items():
            for at_once in _AT_ONCE[era]:
                took = direct.calls(counts.tasks, at_once)
                for (journal, other), gateway in self._gateways.items():
                    if other == era:
                        self._compared[journal, era].take(at_once, gateway.calls(counts.tasks, at_once), took)

    async def close(self) -> None:
        for client in (*self._direct.values(), *self._gateways.values()):
            client.close()
        self._folder.cleanup()


class FastMcpCalls:
    """A peer: FastMCP's proxy, which neither records calls nor decides about them.

    Args:
        python: The interpreter that has it.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._compared = _Comparison("fastmcp proxy", "handshake", most=False)
        self.rows = self._compared.rows

    async def open(self, counts: Counts) -> None:
        need_sdk()
        command = (self._python, "-m", "bench.fastmcp_gateway", *SERVER)
        self._proxy = RawClient(command, "handshake", "fastmcp is not installed for the interpreter of the peers")
        self._proxy.start()
        self._direct = RawClient(SERVER, "handshake")
        self._direct.start()
        for client in (self._proxy, self._direct):
            client.calls(min(100, counts.tasks))

    async def round(self, counts: Counts) -> None:
        for at_once in _AT_ONCE["handshake"]:
            direct = self._direct.calls(counts.tasks, at_once)
            self._compared.take(at_once, self._proxy.calls(counts.tasks, at_once), direct)

    async def close(self) -> None:
        self._proxy.close()
        self._direct.close()


class IdleServers:
    """A gateway that nobody calls, with all its servers. Takes half a minute a round."""

    def __init__(self) -> None:
        self.share = Row(f"gateway with {_SERVERS} idle servers: CPU", unit="%", most=0.5)
        self.rows = (self.share,)

    async def open(self, counts: Counts) -> None:
        need_sdk()
        self._gateway = RawClient(_gateway(servers=_SERVERS), "stateless")
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
        self.over.ratio(_started_s(_gateway(servers=_SERVERS)), direct_s)

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
