"""An ASGI application, served by uvicorn on loopback in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Self

import uvicorn

from tests.waiting import PATIENCE_S

__all__ = ["AppThread"]


class AppThread:
    """Serves `app` from `with` on. It listens before `with` returns, so no request is refused.

    Args:
        port: Where it listens; 0: anywhere.
    """

    def __init__(self, app: Any, *, port: int = 0) -> None:
        config = uvicorn.Config(app, interface="asgi3", log_level="critical", lifespan="on", ws="none", timeout_graceful_shutdown=0)
        self._server = uvicorn.Server(config)
        self._socket = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio sends small answers at once only if the protocol is named
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, name="ASGI application", daemon=True)

    def __enter__(self) -> Self:
        self._socket.listen(128)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))
