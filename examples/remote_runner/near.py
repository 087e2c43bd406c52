"""The near side: a runner whose tools run behind a socket. Give it to an engine, and to tools its name.

    Engine(tools, runners={"remote": RemoteRunner("10.0.0.7", 7701, token, ssl=context)})

One connection carries many calls at once; it is opened when the first call needs it, and again after it was lost.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl as tls
from collections.abc import Callable
from functools import partial

from callgate import Tool, UsageError
from callgate.protocols import Execution, RunRequest
from callgate.remote import (
    Attempt,
    Ended,
    Malformed,
    Refused,
    Send,
    Start,
    Stop,
    decode_answer,
    encode,
    frame,
    read_frame,
    target_of,
)

MOST_BYTES = 8_388_608
"""The largest frame, both ways, and what may wait to be sent. The same on the far side."""
MOST_RESULT_BYTES = MOST_BYTES - 1_048_576
"""The largest result: a frame, less what stands around it."""


class RemoteRunner:
    """Runs tools on another machine.

    Args:
        token: The secret that both sides share.
        ssl: For every machine but this one: without it, token and arguments can be read on the way.
        connect_s: How long a connection may take; the call's deadline bounds it too.
        answer_s: How long the far side may take to say that a stopped tool is gone, after the grace. Together less than a second.
    """

    def __init__(
        self, host: str, port: int, token: str, *, ssl: tls.SSLContext | None = None, connect_s: float = 5.0, answer_s: float = 0.6
    ) -> None:
        if ssl is None and not _is_loopback(host):
            raise UsageError(f"{host} is another machine, and token and arguments could be read on the way. Pass ssl=.")
        self._address = host, port
        self._token = token
        self._ssl = ssl
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._opening: asyncio.Task[_Connection] | None = None
        self._connections: set[_Connection] = set()
        self._number = 0
        self._closed = False
        self.on_late: Callable[[str, Execution], None] | None = None
        """Takes the uid of a call and what its tool answered after the call had ended; the engine sets it."""
        self.late = 0
        self.abandoned = 0

    def check(self, tool: Tool) -> None:
        """Refuse, when it is registered, a tool that the far side could not find. Raises UsageError."""
        target_of(tool)

    async def run(self, request: RunRequest) -> Execution:
        if self._closed:
            return Execution(status="not_started", error="the engine is closed", not_started=True)
        self._number += 1
        attempt = Attempt(
            request,
            str(self._number),
            max_bytes=MOST_RESULT_BYTES,
            answer_s=self._answer_s,
            on_late=partial(self._came_late, request.context.uid),
        )
        try:
            return await attempt.run(partial(self._reach, attempt))
        finally:
            self.abandoned += attempt.abandoned
            for connection in list(self._connections):
                connection.done_with(attempt)

    def _came_late(self, uid: str, execution: Execution) -> None:
        self.late += 1
        if self.on_late is not None:
            self.on_late(uid, execution)

    async def _reach(self, attempt: Attempt) -> Send:
        if self._opening is None or (self._opening.done() and not _is_open(self._opening)):
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_is_open)
        opening = self._opening
        await asyncio.wait([opening])  # and not the task itself: the call that came first may be cancelled, and others wait for it too
        return opening.result().carry(attempt)

    async def _open(self) -> _Connection:
        host, port = self._address
        try:
            async with asyncio.timeout(self._connect_s):
                reader, writer = await asyncio.open_connection(host, port, ssl=self._ssl)
                try:
                    await _greet(reader, writer, self._token)
                except BaseException:
                    writer.transport.abort()
                    raise
        except TimeoutError as error:
            raise TimeoutError(f"{host}:{port} did not answer within {self._connect_s:.3g} s") from error
        connection = _Connection(reader, writer, self._connections.discard)
        self._connections.add(connection)
        return connection

    async def close(self) -> None:
        """End every connection, and with them what runs on the far side. Idempotent."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await asyncio.gather(*(connection.close() for connection in list(self._connections)))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_open(opening: asyncio.Task[_Connection]) -> bool:
    return not opening.cancelled() and opening.exception() is None and opening.result().usable


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    try:
        writer.write(frame(token.encode(), MOST_BYTES))
        welcome = await read_frame(reader, MOST_BYTES)
        if welcome == b"welcome":
            return
        answer = decode_answer(welcome)
        raise ConnectionRefusedError(answer.why if isinstance(answer, Refused) else "it does not answer as a far side would")
    except (EOFError, Malformed) as error:
        raise ConnectionRefusedError(f"it does not answer as a far side would: {error}") from error


class _Connection:
    """One connection, and the attempts that it carries."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_gone: Callable[[_Connection], None]) -> None:
        self._reader = reader
        self._writer = writer
        self._attempts: dict[str, Attempt] = {}
        self._on_gone = on_gone
        self._retired = False
        """A call was not answered in time: this connection takes no more, and ends with the last that still runs."""
        self._closing = False
        self._listening = asyncio.create_task(self._listen())

    @property
    def usable(self) -> bool:
        return not self._retired and not self._writer.transport.is_closing()

    def carry(self, attempt: Attempt) -> Send:
        self._attempts[attempt.id] = attempt
        return self._send

    def _send(self, message: Start | Stop) -> None:
        data = frame(encode(message), MOST_BYTES)
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the connection was lost")
        if isinstance(message, Start) and self._writer.transport.get_write_buffer_size() + len(data) > MOST_BYTES:
            raise ConnectionRefusedError("the far side does not read what it was sent before")
        self._writer.write(data)

    def done_with(self, attempt: Attempt) -> None:
        if attempt.id not in self._attempts:
            return
        if attempt.abandoned:
            self._retired = True
        else:
            del self._attempts[attempt.id]
        if self._retired and all(one.over for one in self._attempts.values()):
            self._writer.transport.abort()  # the far side ends what it still runs

    async def _listen(self) -> None:
        why = "the far side closed it"
        try:
            while True:
                self._hear(await read_frame(self._reader, MOST_BYTES))
        except (OSError, Malformed) as error:
            why = str(error) or type(error).__name__
        except EOFError:
            pass
        finally:
            self._writer.transport.abort()
            self._on_gone(self)
            for attempt in self._attempts.values():
                attempt.closed() if self._closing else attempt.lost(why)

    def _hear(self, body: bytes) -> None:
        message = decode_answer(body)
        if isinstance(message, Refused):
            raise ConnectionRefusedError(message.why)
        attempt = self._attempts.get(message.id)
        if attempt is None:
            return
        attempt.heard(message)
        if isinstance(message, Ended) and attempt.over:
            del self._attempts[message.id]

    async def close(self) -> None:
        self._closing = True
        self._writer.transport.abort()
        await self._listening
