"""uvicorn's HTTP protocol with the bounds that it does not have: how long a client may take to send a head, and to read, and how many
connections there may be that have no request.

A request with a simple head is answered without h11, see `simple_requests.py`. A head and a body that are written together
leave in one segment, which saves a system call and a wake-up of the client for each response.

A response may come before the whole request. What then still comes is thrown away, within bounds, also before the connection is closed: one
that is closed while its client sends is reset, and the client never reads the response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from callgate._deadlines import Deadlines
from callgate.gateway._http.http1_connection import BoundedHeads
from callgate.gateway._http.simple_requests import SimpleBody, SimpleCycle, SimpleRequest, simple_request
from callgate.gateway._http_limits import HttpLimits

__all__ = ["bounded_protocol"]

_LOG = logging.getLogger("callgate.gateway")

_PROGRESS_BYTES = 64 * 1024
"""How much of what waits for a client it must read in each period."""

_JOINED_BYTES = 64 * 1024
"""Larger writes are passed on at once, so that uvicorn learns at once whether the client reads."""

_DISCARDED_BYTES = 64 * 1024 * 1024
"""How much of a request is discarded after its response."""


def bounded_protocol(limits: HttpLimits, on_refused: Callable[[str], None]) -> Callable[..., H11Protocol]:
    """Return a function that makes the protocol of each connection of a server with these limits, in place of uvicorn's class.

    Args:
        on_refused: Called for each request that is refused because it is not HTTP, with the reason `http`.
    """
    idle: dict[H11Protocol, None] = {}
    return partial(_BoundedProtocol, limits, on_refused, idle, Deadlines())


class _BoundedProtocol(H11Protocol):
    """One connection.

    Args:
        idle: The server's connections without a request, the one that has waited longest first.
        deadlines: Those of the server's connections that wait for their next request.
    """

    conn: BoundedHeads

    def __init__(
        self,
        limits: HttpLimits,
        on_refused: Callable[[str], None],
        idle: dict[H11Protocol, None],
        deadlines: Deadlines,
        /,
        *given: Any,
        **options: Any,
    ) -> None:
        super().__init__(*given, **options)
        self.conn = BoundedHeads(limits.head_bytes)
        self._limits, self._on_refused = limits, on_refused
        self._idle = idle
        self._deadlines = deadlines
        self._head_deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None
        self._discard_deadline: asyncio.TimerHandle | None = None
        self._discarded_bytes = 0
        self._unread_response = self._is_stopping = False

    def connection_made(self, transport: Any) -> None:
        self._stream = transport
        self._transport = _JoinedWrites(transport, self.loop, self._close)
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
        if self.cycle is None or self.cycle.response_complete or self._discard_deadline is not None:
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
        if isinstance(self.cycle, SimpleCycle):
            self._go_on_after_simple_cycle()
        else:
            super().on_response_complete()
        if self._is_body_left():
            self._unset_keepalive_if_required()
            self._discard_what_comes()

    def _go_on_after_simple_cycle(self) -> None:
        """Do what uvicorn does when a response is complete, with a timer that all connections share."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        next_request = _SharedTimer(self._deadlines, self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self.timeout_keep_alive_task = cast(asyncio.TimerHandle, next_request)  # uvicorn only cancels it
        self.flow.resume_reading()
        if self.conn.trailing_data[0]:
            self.handle_events()

    def data_received(self, data: bytes) -> None:
        if self._discard_deadline is not None and not self._may_discard(data):
            return
        if isinstance(self.cycle, SimpleCycle):
            data = self.cycle.incoming.feed(data)
        if data:
            self._take(data)
        if self._discard_deadline is not None:
            self._note_if_next_request()
        self._note_if_idle()
        waiting = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not waiting or self._is_answering_simple():
            self._stop_head_deadline()
        elif self._head_deadline is None:
            self._head_deadline = self.loop.call_later(self._limits.head_timeout_s, self.transport.abort)

    def _take(self, data: bytes) -> None:
        """Take data that does not belong to a simple request that is being answered."""
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
        """Return the request that `data` begins; None if h11 has to read it, or to refuse it because there are too many connections."""
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

    # What comes after a response, and the end

    def _is_body_left(self) -> bool:
        """Return whether a request that has its response is not complete."""
        if self.cycle is None or not self.cycle.response_complete:
            return False
        return self.cycle.incoming.left_bytes > 0 if isinstance(self.cycle, SimpleCycle) else self.conn.their_state is h11.SEND_BODY

    def _discard_what_comes(self) -> None:
        self._stop_discarding()
        self._discarded_bytes = 0
        self._discard_deadline = self.loop.call_later(self._limits.body_timeout_s, self._stream.abort)

    def _may_discard(self, data: bytes) -> bool:
        """Count what comes after a response. Return whether it has to be read to find the next request."""
        self._discarded_bytes += len(data)
        if self._discarded_bytes > _DISCARDED_BYTES:
            self._stream.abort()
        return not self.transport.is_closing()

    def _note_if_next_request(self) -> None:
        """Stop discarding if the request that has its response is complete and the connection is kept."""
        if self.transport.is_closing() or self._is_body_left():
            return
        self._stop_discarding()
        if self.timeout_keep_alive_task is None and self.cycle.response_complete:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _stop_discarding(self) -> None:
        if self._discard_deadline is not None:
            self._discard_deadline.cancel()
            self._discard_deadline = None

    def _close(self) -> None:
        """Close the connection when its client has closed it, if the client may still send something, else at once."""
        sends = self.conn.their_state in (h11.SEND_BODY, h11.ERROR) or self._is_body_left() or bool(self.conn.trailing_data[0])
        if self._is_stopping or not sends or self._stream.is_closing():
            self._stream.close()
            return
        self._stream.write_eof()
        self._stream.resume_reading()
        self._stop_head_deadline()
        self._idle.setdefault(self)
        self._discard_what_comes()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and say why, which uvicorn's text does not."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send_refusal(self.conn.refused_status, self.conn.refused_text.encode("ascii", "replace"))
        self.transport.close()

    def _send_refusal(self, status: int, text: bytes) -> None:
        _LOG.info("refused %s: %s", status, text.decode())
        self._on_refused("http")
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"x-content-type-options", b"nosniff"),
            (b"connection", b"close"),
        ]
        response = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        for event in (response, h11.Data(data=text), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))

    def shutdown(self) -> None:
        self._is_stopping = True
        if self.transport.is_closing():
            self._stream.close()
        else:
            super().shutdown()

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
        self._stop_discarding()
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


class _SharedTimer:
    """A deadline with `cancel`, the only method of `asyncio.TimerHandle` that uvicorn uses."""

    def __init__(self, deadlines: Deadlines, delay_s: float, call: Callable[[], None]) -> None:
        self._deadlines = deadlines
        self._deadline = deadlines.set(delay_s, call)

    def cancel(self) -> None:
        self._deadlines.cancel(self._deadline)


class _JoinedWrites:
    """A transport with what uvicorn uses of one. Sends together what is written in one turn of the event loop, unless it is large.

    Args:
        close: Closes the transport, now or when the client has closed it. Called once.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, close: Callable[[], None]) -> None:
        self._transport, self._loop, self._close = transport, loop, close
        self._parts: list[bytes] = []
        self._closes = False
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
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
        if not self._closes:
            self._closes = True
            self._close()

    def is_closing(self) -> bool:
        return self._closes or bool(self._transport.is_closing())

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            if not self.is_closing():
                self._transport.write(data)
