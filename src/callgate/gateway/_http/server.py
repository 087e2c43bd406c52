"""Run the application in uvicorn on a TCP port or a Unix socket, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from types import TracebackType
from typing import Any, Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from callgate.gateway._http.app import HttpApp

__all__ = ["HttpServer"]


class HttpServer:
    """`async with` listens, serves and stops in bounded time.

    Args:
        app: The application.
        host: The address to listen on.
        port: The port; 0 for any free one, which is then in `port`.
        unix_socket: The path of a Unix socket to listen on instead.
    """

    def __init__(self, app: HttpApp, host: str = "127.0.0.1", port: int = 0, unix_socket: str | None = None) -> None:
        self.port = port
        self._app, self._host, self._unix_socket = app, host, unix_socket

    async def __aenter__(self) -> Self:
        self._socket = self._listen()
        limits = self._app.limits
        config = uvicorn.Config(
            self._app,
            http=_protocol(limits.head_timeout_s),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            h11_max_incomplete_event_size=limits.head_bytes,
            timeout_graceful_shutdown=max(1, round(limits.stop_timeout_s)),
        )
        self._server = uvicorn.Server(config)
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup([self._socket])
        self._running = asyncio.create_task(self._server.main_loop())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.should_exit = True
        await self._running
        await self._app.close()
        await self._server.shutdown([self._socket])

    def _listen(self) -> socket.socket:
        if self._unix_socket is not None:
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(self._unix_socket)
        else:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            listening = socket.socket(family)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.ExitStack() as stack:
                stack.callback(listening.close)
                listening.bind((self._host, self.port))
                stack.pop_all()
            self.port = listening.getsockname()[1]
        return listening


def _protocol(head_timeout_s: float) -> type[H11Protocol]:
    class BoundedProtocol(H11Protocol):
        """Closes a connection whose next head takes too long; uvicorn waits for ever."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._deadline = self.loop.call_later(head_timeout_s, transport.abort)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            waiting = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
            if not waiting:
                self._stop_deadline()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(head_timeout_s, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_deadline()
            super().connection_lost(exc)

        def _stop_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return BoundedProtocol
