"""Notice that the client of a running request has gone away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from callgate.gateway._http.simple_requests import SimpleBody
from callgate.gateway._http.streams import Receive, wait_for_disconnect

__all__ = ["ClientWatch", "watch_client"]

_WATCH_AFTER_S = 0.02
"""A request that is answered sooner is not watched in a task: to notice that its client has gone would cost more than it saves."""


class ClientWatch(Protocol):
    def cancel(self) -> object:
        """Stop watching. Idempotent."""
        ...


def watch_client(receive: Receive, gone: Callable[[], None]) -> ClientWatch:
    """Call `gone` when the client goes away, unless the watch is cancelled before."""
    return _BodyWatch(receive, gone) if isinstance(receive, SimpleBody) else _ReceivingWatch(receive, gone)


class _BodyWatch:
    def __init__(self, body: SimpleBody, gone: Callable[[], None]) -> None:
        self._body = body
        body.on_disconnect(gone)

    def cancel(self) -> None:
        self._body.on_disconnect(None)


class _ReceivingWatch:
    def __init__(self, receive: Receive, gone: Callable[[], None]) -> None:
        self._receive, self._gone = receive, gone
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_S, self._start)

    def cancel(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        await wait_for_disconnect(self._receive)
        self._gone()
