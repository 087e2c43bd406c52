"""What a call costs through the gateway over the same call of the server itself, over stdio and over HTTP.

The server is one of the official SDK. CPU times are those of the whole server side: the gateway's process with the server's. The gateway is
the command `callgate serve`: with its journal in a file, where every call has an effect, so it makes two commits, and with its journal in
memory, which shows what the file costs. The floors are the least that a gateway can do with these commits.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from bench.mcp_client import ROOT, SERVER, Client, Era, RawClient, Took, need_sdk
from bench.mcp_http_client import HttpClient, free_port
from bench.measure import Counts, Row

__all__ = ["FastMcpCalls", "GatewayCalls", "HttpGatewayCalls"]

_Journal = Literal["file", "memory"]

_ERAS: tuple[Era, ...] = ("stateless", "handshake")
_SERVE = (sys.executable, "-c", "import sys; from callgate.cli import main; sys.exit(main())", "serve", "--config")
_BARE = (sys.executable, "-m", "bench.bare_gateway")
_AT_ONCE = (1, 16, 64)
_MOST_CPU = 2.0
_MOST_OVER_MS = 0.5
_MOST_SLOWER = 1 / 0.6


class _Comparison:
    """The rows of one gateway in front of the server, for one era of clients.

    Args:
        over: Whether a row says by how much the CPU time of a call is higher, and not how many times.
        judged: Whether the rows have targets.
    """

    def __init__(self, name: str, era: Era, *, over: bool = False, judged: bool = True) -> None:
        self._over = over
        unit, what, most = ("ms", "CPU over direct", _MOST_OVER_MS) if over else ("×", "CPU / direct", _MOST_CPU)  # noqa: RUF001
        self.cpu = {count: Row(f"{name}, {era}, {count} at once: {what}", unit=unit, most=most if judged else None) for count in _AT_ONCE}
        self.slower = Row(f"{name}, {era}, 64 at once: direct throughput / its own", most=_MOST_SLOWER if judged else None)
        self.rows = (*self.cpu.values(), self.slower)

    def take(self, at_once: int, ours: Took, direct: Took) -> None:
        row = self.cpu[at_once]
        row.samples.append((ours.cpu_s - direct.cpu_s) * 1000 if self._over else ours.cpu_s / direct.cpu_s)
        row.ours_us.append(ours.cpu_s * 1e6)
        row.floor_us.append(direct.cpu_s * 1e6)
        if at_once == 64:
            self.slower.ratio(ours.wall_s, direct.wall_s)


Gateway = Callable[[Era, Path], Client]
"""Returns a client of a gateway that is yet to be started, which keeps its files in the folder."""


class _Gateways:
    """Compares gateways with the server, for clients of both eras.

    Args:
        judged: The gateways whose rows have targets, by the first words of the rows.
        floors: Other gateways, likewise.
    """

    def __init__(self, judged: Mapping[str, Gateway], floors: Mapping[str, Gateway] = MappingProxyType({}), *, over: bool = False) -> None:
        self._made = {**judged, **floors}
        self._compared = {(name, era): _Comparison(name, era, over=over, judged=name in judged) for name in self._made for era in _ERAS}
        self.rows = tuple(row for compared in self._compared.values() for row in compared.rows)

    async def open(self, counts: Counts) -> None:
        need_sdk()
        self._folder = tempfile.TemporaryDirectory()
        self._direct = {era: self._server(era) for era in _ERAS}
        self._gateways = {(name, era): self._made[name](era, Path(self._folder.name)) for name, era in self._compared}
        for client in (*self._direct.values(), *self._gateways.values()):
            client.start()
            client.calls(min(100, counts.tasks), 16)

    def _server(self, era: Era) -> Client:
        raise NotImplementedError

    async def round(self, counts: Counts) -> None:
        for era, direct in self._direct.items():
            for at_once in _AT_ONCE:
                took = direct.calls(counts.tasks, at_once)
                for (name, other), gateway in self._gateways.items():
                    if other == era:
                        self._compared[name, era].take(at_once, gateway.calls(counts.tasks, at_once), took)

    async def close(self) -> None:
        for client in (*self._gateways.values(), *self._direct.values()):
            client.close()
        self._folder.cleanup()


class GatewayCalls(_Gateways):
    """Over stdio. The floor is as over HTTP."""

    def __init__(self) -> None:
        name = "gateway over stdio, journal in"
        super().__init__(
            {f"{name} a file": partial(self._serve, "file"), f"{name} memory": partial(self._serve, "memory")},
            {"a bare forwarder over stdio making the same commits": self._bare},
        )

    def _server(self, era: Era) -> Client:
        return RawClient(SERVER, era)

    def _serve(self, journal: _Journal, era: Era, folder: Path) -> Client:
        config = _config(journal, folder / f"{era}.db", f"command = {json.dumps(SERVER)}\ncwd = {json.dumps(str(ROOT))}")
        return RawClient((*_SERVE, str(config)), era)

    def _bare(self, era: Era, folder: Path) -> Client:
        return RawClient((*_BARE, str(folder / f"{era}-bare.db"), "stdio", *SERVER), era)


class HttpGatewayCalls(_Gateways):
    """Over HTTP. The floor passes the messages on and makes the same commits, and does nothing else."""

    def __init__(self) -> None:
        name = "gateway over HTTP, journal in"
        super().__init__(
            {f"{name} a file": partial(self._serve, "file"), f"{name} memory": partial(self._serve, "memory")},
            {"a bare forwarder over HTTP making the same commits": self._bare},
            over=True,
        )

    def _server(self, era: Era) -> Client:
        port = free_port()
        return HttpClient([(*SERVER, str(port))], [port], era)

    def _serve(self, journal: _Journal, era: Era, folder: Path) -> Client:
        behind, front = free_port(), free_port()
        http = f'[http]\nlisten = "127.0.0.1:{front}"\nanonymous = true'
        config = _config(journal, folder / f"{era}.db", f'url = "http://127.0.0.1:{behind}/mcp"\n{http}')
        return HttpClient([(*SERVER, str(behind)), (*_SERVE, str(config), "--http")], [behind, front], era)

    def _bare(self, era: Era, folder: Path) -> Client:
        behind, front = free_port(), free_port()
        forwarder = (*_BARE, str(folder / f"{era}-bare.db"), "http", str(front), str(behind))
        return HttpClient([(*SERVER, str(behind)), forwarder], [behind, front], era)


def _config(journal: _Journal, database: Path, server: str) -> Path:
    """Write the configuration of a gateway.

    Args:
        database: The file of a journal in a file.
        server: The lines of the server's table, and what follows it.
    """
    file = database.with_name(f"{database.stem}-{journal}.toml")
    place = str(database) if journal == "file" else ":memory:"
    file.write_text(f"journal = {json.dumps(place)}\n[servers.bench]\n{server}\n", encoding="utf-8")
    return file


class FastMcpCalls:
    """A peer: FastMCP's proxy over stdio, which neither records calls nor decides about them.

    Args:
        python: The interpreter that has it.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._compared = _Comparison("fastmcp proxy over stdio", "handshake", judged=False)
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
        for at_once in _AT_ONCE:
            direct = self._direct.calls(counts.tasks, at_once)
            self._compared.take(at_once, self._proxy.calls(counts.tasks, at_once), direct)

    async def close(self) -> None:
        self._proxy.close()
        self._direct.close()
