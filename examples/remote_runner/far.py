"""The far side: listens, and runs the calls of those who know the token, in processes that can be stopped.

    REMOTE_TOKEN=... python far.py PORT MODULE...

serves all tools of these modules, on this machine only; from your own program, `serve` takes an address and a TLS context. A call ends with
the connection it came over.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import ipaddress
import os
import signal
import ssl as tls
import sys
from collections.abc import Iterable
from importlib import import_module

from callgate import AbortController, Limits, Tool, UsageError
from callgate.protocols import Execution
from callgate.remote import Ended, Late, Malformed, OutputPiece, Refused, Start, Workers, decode_order, encode, frame, read_frame

MOST_BYTES = 8_388_608
"""The largest frame, both ways. The same on the near side."""
MOST_RESULT_BYTES = MOST_BYTES - 1_048_576
MOST_TOKEN_BYTES = 4_096
MOST_CONNECTIONS = 16
MOST_CALLS = 32
"""Of one connection; more are not started."""
MOST_UNSENT_BYTES = 1_048_576
"""Progress is left out while more than this waits for a near side that does not read."""
GREETING_S = 5.0
READ_S = 30.0
"""A near side that has not taken a result after this is given up."""


async def serve(tools: Iterable[Tool], token: str, *, host: str = "127.0.0.1", port: int = 0, ssl: tls.SSLContext | None = None) -> FarSide:
    """Listen until the returned far side is closed. Port 0: one that is free.

    Raises:
        UsageError: No token, or an address that others can reach and no TLS.
    """
    if len(token) < 16:
        raise UsageError(
            "The token has fewer than 16 characters. Make one, and give it to both sides; far.py takes it as REMOTE_TOKEN:"
            " python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if ssl is None and not _is_loopback(host):
        raise UsageError(f"{host} can be reached from elsewhere, where token and arguments could be read. Pass ssl=, or use 127.0.0.1.")
    far = FarSide(Workers(tools, limits=Limits(result_bytes=MOST_RESULT_BYTES)), token)
    far.server = await asyncio.start_server(far.accept, host, port, ssl=ssl)
    return far


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class FarSide:
    """Who listens, and all who have called."""

    server: asyncio.Server

    def __init__(self, workers: Workers, token: str) -> None:
        self._workers = workers
        self._token = token.encode()
        self._callers: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return int(self.server.sockets[0].getsockname()[1])

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._callers) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._callers.add(task)
        task.add_done_callback(self._callers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = _Caller(writer, self._workers)
        try:
            async with asyncio.timeout(GREETING_S):
                given = await read_frame(reader, MOST_TOKEN_BYTES)
            if not hmac.compare_digest(given, self._token):
                raise Malformed("the token is not the one of this far side. Give both sides the same.")
            writer.write(frame(b"welcome", MOST_BYTES))
            while True:
                caller.take(await read_frame(reader, MOST_BYTES))
        except Malformed as error:
            writer.write(frame(encode(Refused(why=str(error))), MOST_BYTES))
        except (EOFError, OSError):
            pass
        finally:
            writer.close()
            await caller.end()
            await _flushed(writer)

    async def close(self) -> None:
        self.server.close()
        for task in self._callers:
            task.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)
        await self._workers.close()


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """The last words are read, or nobody reads them."""
    try:
        async with asyncio.timeout(GREETING_S):
            await writer.wait_closed()
    except OSError:
        writer.transport.abort()


class _Caller:
    """The calls of one connection."""

    def __init__(self, writer: asyncio.StreamWriter, workers: Workers) -> None:
        self._writer = writer
        self._workers = workers
        self._running: dict[str, AbortController] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, body: bytes) -> None:
        order = decode_order(body)
        if not isinstance(order, Start):
            if order.id in self._running:
                self._running[order.id].abort(order.reason)
            return
        if order.id in self._running:
            raise Malformed(f"the id {order.id} is in use. Give every attempt one of its own.")
        if len(self._tasks) >= MOST_CALLS:
            busy = Execution(status="not_started", error=f"the far side runs {MOST_CALLS} calls of this connection", not_started=True)
            self._say(Ended.of(order.id, busy))
            return
        self._running[order.id] = AbortController()
        task = asyncio.create_task(self._run(order))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, start: Start) -> None:
        try:
            ended = await self._workers.run(start, self._running[start.id].signal, self._say)
        finally:
            del self._running[start.id]
        try:
            self._say(ended)
        except ValueError as error:
            self._say(Ended.of(start.id, Execution(status="raised", error_type="ResultNotSerializable", error=str(error))))
        try:
            async with asyncio.timeout(READ_S):
                await self._writer.drain()
        except OSError:
            self._writer.transport.abort()

    def _say(self, message: OutputPiece | Late | Ended) -> None:
        transport = self._writer.transport
        crowded = transport.get_write_buffer_size() > MOST_UNSENT_BYTES
        if not transport.is_closing() and not (crowded and isinstance(message, OutputPiece)):
            self._writer.write(frame(encode(message), MOST_BYTES))

    async def end(self) -> None:
        """Nobody listens any more: end what runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def tools_of(modules: list[str]) -> set[Tool]:
    """Every tool that one of the modules has a name for."""
    found = {value for name in modules for value in vars(import_module(name)).values() if isinstance(value, Tool)}
    if not found:
        raise UsageError(f"{', '.join(modules)}: there is no tool in it. Name a module with @tool functions at its top level.")
    return found


async def main(port: int, tools: set[Tool], token: str) -> None:
    far = await serve(tools, token, port=port)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    print(f"listening on 127.0.0.1:{far.port}", flush=True)
    await ended.wait()
    await far.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run the tools of modules for those who know REMOTE_TOKEN.")
    parser.add_argument("port", type=int, help="0: one that is free")
    parser.add_argument("module", nargs="+", help="as in an import statement; looked for in this folder, too")
    given = parser.parse_args()
    sys.path.insert(0, os.getcwd())
    try:
        asyncio.run(main(given.port, tools_of(given.module), os.environ.get("REMOTE_TOKEN", "")))
    except (UsageError, ImportError, OSError, OverflowError) as error:
        sys.exit(f"far.py: {error}")
