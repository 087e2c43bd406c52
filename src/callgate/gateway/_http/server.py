"""Run the application in uvicorn on a TCP port, within bounds. Leaves signals to the program."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from types import TracebackType
from typing import Self

import uvicorn
from msgspec.structs import replace

from callgate.gateway._http.app import HttpApp
from callgate.gateway._http.connections import bounded_protocol
from callgate.gateway._http.open_files import possible_connections

__all__ = ["HttpServer"]


class HttpServer:
    """`async with` listens, serves and stops in bounded time.

    Args:
        app: The application.
        host: The address to listen on.
        port: The port; 0 for any free one, which is then in `port`.
    """

    def __init__(self, app: HttpApp, host: str = "127.0.0.1", port: int = 0) -> None:
        self.port = port
        self._app, self._host = app, host

    async def __aenter__(self) -> Self:
        """Begin to listen.

        Raises:
            OSError: The address cannot be used.
        """
        self._server = _UvicornServer(self._config())
        listening = self._listen()
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait((self._serving, ready), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._serving.done():
            self._serving.result()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.should_exit = True
        await self._app.close()
        await self._serving

    def _config(self) -> uvicorn.Config:
        limits = replace(self._app.limits, connections=possible_connections(self._app.limits.connections))
        return uvicorn.Config(
            self._app,
            http=bounded_protocol(limits, self._app.on_refused),  # type: ignore[arg-type]  # it only calls it
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.ERROR,  # its warnings are about what clients send
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            h11_max_incomplete_event_size=limits.head_bytes,
            timeout_graceful_shutdown=math.ceil(limits.stop_timeout_s) + 1,
        )

    def _listen(self) -> socket.socket:
        # With the protocol named, asyncio sets TCP_NODELAY; without it, a response waits 40 ms for the client's acknowledgement.
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        with contextlib.ExitStack() as stack:
            stack.callback(listening.close)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self.port))
            stack.pop_all()
        self.port = listening.getsockname()[1]
        return listening


class _UvicornServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()
