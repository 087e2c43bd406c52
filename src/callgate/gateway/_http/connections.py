"""uvicorn's HTTP protocol with the bounds that it does not have: how long a client may take to send a head, and to read, and how many
connections there may be that have no request.

A request with a simple head is answered without h11, see `simple_requests.py`. A head and a body that are written together
leave in one segment, which saves a system call and a wake-up of the client for each response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from callgate.gateway._http.simple_requests import SimpleBody, SimpleCycle, SimpleRequest, simple_request
from callgate.gateway._http_limits import HttpLimits

__all__ = ["bounded_protocol"]

_PROGRESS_BYTES = 64 * 1024
"""How much of what waits for a client it must read in each period."""

_JOINED_BYTES = 64 * 1024
"""Larger writes are passed on at once, so that uvicorn learns at once whether the client reads."""


def bounded_protocol(limits: HttpLimits) -> Callable[..., H11Protocol]:
    """Return what makes the protocols of one server's connections with these limits, in place of uvicorn's class."""
    idle: dict[H11Protocol, None] = {}
    return partial(_BoundedProtocol, limits, idle)


class _BoundedProtocol(H11Protocol):
    """One connection.

    Args:
        idle: The server's connections without a request, the one that has waited longest first.
    """

    def __init__(self, limits: HttpLimits, idle: dict[H11Protocol, None], /, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._limits = limits
        self._idle = idle
        self._head_deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None
        self._unread_response = False

    def connection_made(self, transport: Any) -> None:
        self._transport = _JoinedWrites(transport, self.loop)
        super().connection_made(self._transport)  # type: ignore[arg-type]
        self._head_deadline = self.loop.call_later(self._limits.head_timeout_s, transport.abort)
        if len(self.connections) >= self._limits.connections and self._idle:
            self._end_one()
        self._idle[self] = None

    def _end_one(self) -> None:
        oldest = next(iter(self._idle))
        del self._idle[oldest]
        self.connections.discard(oldest)
        oldest.transport.abort()

    def _note_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._idle.setdefault(self)
        else:
            self._idle.pop(self, None)

    def on_response_complete(self) -> None:
        """Go on with the next pipelined request, but not before the client has read most of this response.

        Else each connection of a client that does not read holds two responses.
        """
        self._unread_response = self.flow.write_paused
        if not self._unread_response:
            self._go_on()
        self._note_if_idle()

    def _go_on(self) -> None:
        simple = isinstance(self.cycle, SimpleCycle)
        super().on_response_complete()
        if simple and self.conn.trailing_data[0] and not self.transport.is_closing():
            self.handle_events()

    def data_received(self, data: bytes) -> None:
        if isinstance(self.cycle, SimpleCycle):
            data = self.cycle.incoming.feed(data)
        if data:
            self._take(data)
        self._note_if_idle()
        waiting = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not waiting or self._is_answering_simple():
            self._stop_head_deadline()
        elif self._head_deadline is None:
            self._head_deadline = self.loop.call_later(self._limits.head_timeout_s, self.transport.abort)

    def _take(self, data: bytes) -> None:
        """Take what belongs to no simple request that is being answered."""
        if self._is_answering_simple():  # kept until the response is sent
            self.conn.receive_data(data)
            self.flow.pause_reading()
            return
        request = self._simple_request(data)
        if request is None:
            super().data_received(data)
        else:
            self._answer(request)

    def _is_answering_simple(self) -> bool:
        return isinstance(self.cycle, SimpleCycle) and (self._unread_response or not self.cycle.response_complete)

    def _simple_request(self, data: bytes) -> SimpleRequest | None:
        """Return the request that `data` begins; None if h11 has to read it, or to refuse it for want of places."""
        if self.conn.our_state is not h11.IDLE or self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0] or self.access_log:
            return None
        most = self._limits.connections
        return None if len(self.connections) >= most or len(self.tasks) >= most else simple_request(data, self._limits.head_bytes)

    def _answer(self, request: SimpleRequest) -> None:
        self._unset_keepalive_if_required()
        self.headers = request.headers
        path = request.path.decode("ascii")
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "method": "POST",
            "root_path": self.root_path,
            "path": self.root_path + path,
            "raw_path": self.root_path.encode("ascii") + request.path,
            "query_string": b"",
            "headers": self.headers,
            "state": self.app_state.copy(),
        }
        body = SimpleBody(request.body_bytes, self.flow)
        body.feed(request.body)
        self.cycle = SimpleCycle(
            body,
            self._transport.write_now,
            scope=self.scope,
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            on_response=self.on_response_complete,
        )
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_deadline is None:
            self._expect_progress()

    def resume_writing(self) -> None:
        self._stop_read_deadline()
        super().resume_writing()
        if self._unread_response:
            self.on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._idle.pop(self, None)
        self._stop_head_deadline()
        self._stop_read_deadline()
        super().connection_lost(exc)

    def _expect_progress(self) -> None:
        waiting_bytes = self.transport.get_write_buffer_size()
        self._read_deadline = self.loop.call_later(self._limits.read_timeout_s, self._check_progress, waiting_bytes)

    def _check_progress(self, before_bytes: int) -> None:
        if self.transport.get_write_buffer_size() > before_bytes - _PROGRESS_BYTES:
            self.transport.abort()
        else:
            self._expect_progress()

    def _stop_head_deadline(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _stop_read_deadline(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None


class _JoinedWrites:
    """A transport with what uvicorn uses of one. Sends together what is written in one turn of the event loop, unless it is large."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.is_closing = transport.is_closing
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.abort = transport.abort

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) > _JOINED_BYTES:
            self._flush()

    def write_now(self, data: bytes) -> None:
        """Send data with all that waits."""
        self._parts.append(data)
        self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            if not self._transport.is_closing():
                self._transport.write(data)
