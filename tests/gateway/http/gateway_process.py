"""A gateway over HTTP in a process of its own, so that its memory and its open files can be measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.forked_python import ForkedProcess
from tests.waiting import COMMAND_S

__all__ = ["GatewayProcess", "call", "exchanged", "gateway_process", "session"]

VERSION = "2026-07-28"
ACCEPT = "application/json, text/event-stream"


class GatewayProcess:
    """A running gateway. Tokens are `token-of-alice` and `token-of-bob`."""

    def __init__(self, process: ForkedProcess, ledger: Path, log: Path) -> None:
        self._process, self._ledger, self._log, self._proc = process, ledger, log, Path(f"/proc/{process.pid}")
        self.port = int(process.stdout.readline())

    def client(self, user: str = "alice") -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer token-of-{user}", "Accept": ACCEPT}
        limits = httpx2.Limits(max_connections=None)
        return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=headers, limits=limits, timeout=30)

    def stop(self) -> None:
        """Let it stop. It ends requests that go on."""
        self._process.stdin.close()

    def runs(self) -> list[str]:
        """Return the names of the tools that have run."""
        return self._ledger.read_text().split()

    def log(self) -> str:
        return self._log.read_text()

    def open_files(self) -> int:
        return sum(1 for _ in (self._proc / "fd").iterdir())

    def memory_mb(self, of: str = "VmRSS") -> float:
        [line] = [line for line in (self._proc / "status").read_text().splitlines() if line.startswith(f"{of}:")]
        return int(line.split()[1]) / 1024

    def most_memory_mb(self) -> float:
        """Return the most memory since the last `forget_most_memory`."""
        return self.memory_mb("VmHWM")

    def forget_most_memory(self) -> None:
        (self._proc / "clear_refs").write_text("5")


async def call(client: httpx2.AsyncClient, name: str, arguments: dict[str, Any], number: int = 1, **more: Any) -> dict[str, Any]:
    """Call a tool as a stateless client that can show forms; return the response."""
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": VERSION, f"{prefix}clientCapabilities": {"elicitation": {"form": {}}}}
    params = {"name": name, "arguments": arguments, "_meta": meta, **more}
    headers = {"MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": name}
    answer = await client.post("/mcp", json={"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, headers=headers)
    response: dict[str, Any] = answer.json()
    return response


async def session(client: httpx2.AsyncClient) -> str:
    """Begin a handshake session; return its id."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    answer = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    return str(answer.headers["mcp-session-id"])


async def exchanged(port: int, request: bytes, until_closed: bool = False) -> tuple[int, bytes, bool]:
    """Send bytes; return the status, the whole response, and whether the server has closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(10):
                sending = asyncio.ensure_future(_send(writer, request))
                while part := await reader.read(65536):
                    received += part
                    if not until_closed and _complete(received):
                        break
                await sending
        return (int(received.split(b" ", 2)[1]) if received else 400), received, reader.at_eof()
    finally:
        writer.transport.abort()


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):
        for start in range(0, len(data), 65536):
            writer.write(data[start : start + 65536])
            await writer.drain()


def _complete(received: bytes) -> bool:
    head, ended, body = received.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(ended) and (len(body) >= int(lengths[0]) if lengths else bool(body))


@contextmanager
def gateway_process(folder: Path, open_files: int = 0, **limits: Any) -> Iterator[GatewayProcess]:
    """Run a gateway with these `HttpLimits`.

    Args:
        open_files: How many files it may have open; 0: as many as the tests.
    """
    ledger, log = folder / "ledger", folder / "log"
    ledger.touch()
    code = "import runpy; runpy.run_module('tests.gateway.http.gateway_program', run_name='__main__', alter_sys=True)"
    if open_files:
        code = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({open_files}, {open_files})); {code}"
    with log.open("w") as errors:
        process = ForkedProcess("python -c", [code, str(ledger), json.dumps(limits)], stderr=errors.fileno())
    try:
        yield GatewayProcess(process, ledger, log)
        process.stdin.close()
        process.wait(COMMAND_S)
    finally:
        process.close()
