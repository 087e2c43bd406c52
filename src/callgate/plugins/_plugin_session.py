"""One run of a plugin's process: greeted, asked for its tools, given calls, and ended.

Gives each answer to the call that waits for it. An answer to a call that was cancelled is late. Everything else that the plugin writes is
counted as noise. Knows no restart and no tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from msgspec import Struct

from callgate._secret_redaction import RedactedLog
from callgate._server_processes.child_process import ServerCommand
from callgate._server_processes.line_process import LineProcess
from callgate._server_processes.server_errors import NotSent, ProtocolError, ToolServerError
from callgate._version import __version__
from callgate.plugins._messages import Message, UnreadableFrame, described_tools, encoded, message_id, read_frame
from callgate.plugins.manifest import PROTOCOL, ToolSettings

__all__ = ["PluginSession", "SessionEvents"]

CANCEL_S = 1.0
"""How long a plugin may take to end a call that was cancelled."""
_GRACE_S = 1.0
_END_S = 0.5
"""How long the end of a process is waited for whose input is closed."""
_KEPT_IDS = 1_000
_LOGGED_NOISE = 5
_LOGGED_CHARS = 2_000
_SHOWN_CHARS = 120

Report = Callable[[str, str], None]


class SessionEvents(Struct, frozen=True, kw_only=True, eq=False):
    """The callbacks of a session, beside the answers to calls."""

    on_tools: Callable[[tuple[ToolSettings, ...]], None]
    """Called when the plugin describes its tools again of its own accord."""
    on_stuck: Callable[[], None]
    """Called when a cancelled call has not ended in time."""
    on_late: Callable[[str, Message], None]
    """Called with the uid of a call that has ended, and the answer that arrived after that."""
    log: RedactedLog


class PluginSession:
    """Talks to one process of a plugin.

    Args:
        parallel: How many calls it handles at the same time.
    """

    def __init__(self, command: ServerCommand, parallel: int, events: SessionEvents) -> None:
        self._name = command.name
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._process = LineProcess(command, events.log, self)
        self.lost = self._process.lost
        self.slots = asyncio.Semaphore(parallel)
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._reports: dict[int, Report] = {}
        self._cancelled: dict[int, str] = {}
        """The uids of calls that were cancelled and have not been answered, by id."""
        self._ready: asyncio.Future[Message] = self._loop.create_future()
        self._described: asyncio.Future[Message] | None = None
        self._pong: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.noise = 0
        """The number of things that the plugin wrote and that were ignored."""
        self.heard = 0
        """The number of messages of the plugin."""

    async def start(self, *, describe: bool) -> tuple[ToolSettings, ...]:
        """Start the process and wait until it is ready; return the tools that it describes, if it is asked to.

        Raises:
            ToolServerError: It cannot be started, ended, or sent something that cannot be used.
        """
        await self._process.open()
        try:
            self._process.write(encoded({"kind": "hello", "protocol": PROTOCOL, "engine": f"callgate {__version__}"}))
        except NotSent:
            await asyncio.wait([self.lost], timeout=_END_S)  # how it has ended says more than its closed input
            raise
        given = (await self._ready).get("tools")
        if not describe:
            return ()
        if given is None:
            self._described = self._loop.create_future()
            self._process.write(encoded({"kind": "describe"}))
            given = (await self._described).get("tools")
        return described_tools(self._name, given)

    async def call(self, uid: str, tool: str, arguments: Mapping[str, Any], context: Mapping[str, object], report: Report) -> Message:
        """Send one call and return its `result` or `error`.

        Cancelling this coroutine cancels the call in the plugin, and returns at once.

        Raises:
            NotSent: The plugin certainly did not get the call.
            ConnectionLost: It has ended before its answer.
            ProtocolError: Its answer is none.
        """
        try:
            await self._process.wait_until_drained()
        except asyncio.CancelledError as error:
            raise NotSent(f"The plugin '{self._name}' did not read its input in time, so the call was not sent.") from error
        request_id = next(self._ids)
        waiting: asyncio.Future[Message] = self._loop.create_future()
        self._waiting[request_id] = waiting
        self._reports[request_id] = report
        self._idle.clear()
        try:
            self._process.write(encoded({"kind": "call", "id": request_id, "tool": tool, "arguments": arguments, "context": context}))
            return await waiting
        except asyncio.CancelledError:
            self._cancel(request_id, uid)
            raise
        finally:
            del self._waiting[request_id], self._reports[request_id]
            if not self._waiting:
                self._idle.set()

    def _cancel(self, request_id: int, uid: str) -> None:
        self._cancelled[request_id] = uid
        if len(self._cancelled) > _KEPT_IDS:
            del self._cancelled[next(iter(self._cancelled))]
        self._process.notify(encoded({"kind": "cancel", "id": request_id, "reason": "the caller no longer waits"}))
        self._loop.call_later(CANCEL_S, self._check_cancelled, request_id)

    def _check_cancelled(self, request_id: int) -> None:
        if request_id in self._cancelled and not self.lost.done():
            self._events.on_stuck()

    async def ping(self) -> None:
        """Wait until the plugin answers.

        Raises:
            ToolServerError: It is gone.
        """
        self._pong = self._loop.create_future()
        self._process.write(encoded({"kind": "ping"}))
        await self._pong

    async def wait_until_idle(self) -> None:
        """Wait until no call runs."""
        await self._idle.wait()

    @property
    def last_words(self) -> str:
        """The end of its standard error once it is lost, for the operator."""
        return self._process.last_words

    @property
    def is_idle(self) -> bool:
        return self._idle.is_set()

    async def close(self) -> None:
        """Ask the plugin to end, and end its processes after a moment. Idempotent."""
        self._process.notify(encoded({"kind": "shutdown", "grace_s": _GRACE_S}))
        await self._process.close(_GRACE_S)

    # Callbacks of the process

    def receive_line(self, data: bytes | bytearray) -> None:
        try:
            message = read_frame(data)
        except UnreadableFrame as error:
            self._handle_unreadable(data, error)
            return
        self.heard += 1
        request_id = message_id(message)
        match message:
            case {"kind": "result" | "error"} if request_id is not None:
                self._handle_answer(request_id, message)
            case {"kind": "progress", "text": str(text)} if request_id is not None:
                self._report_progress(request_id, text, message.get("stream"))
            case {"kind": "ready"}:
                _resolve(self._ready, message)
            case {"kind": "tools"}:
                self._handle_tools(message)
            case {"kind": "pong"}:
                _resolve(self._pong, None)
            case {"kind": "log", "text": str(text)}:
                self._events.log.debug("plugin %s logs: %s", self._name, text[:_LOGGED_CHARS])
            case _:
                self._note(f"a message of the unknown kind {message['kind'][:40]!r}, or without what belongs to its kind")

    def handle_end(self, error: ToolServerError) -> None:
        before = NotSent(f"The plugin '{self._name}' has ended before it was ready.", code="cannot_start")
        for one in self._waiting.values():
            _fail(one, error)
        for start in (self._ready, self._described, self._pong):
            if start is not None:
                _fail(start, before)

    def _handle_answer(self, request_id: int, message: Message) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
            return
        uid = self._cancelled.pop(request_id, None)
        if uid is not None:
            self._events.on_late(uid, message)
        else:
            self._note(f"an answer that no call waits for, with the id {request_id}")

    def _report_progress(self, request_id: int, text: str, stream: object) -> None:
        report = self._reports.get(request_id)
        if report is not None:
            report(text, stream if isinstance(stream, str) and stream else "progress")

    def _handle_tools(self, message: Message) -> None:
        if self._described is not None and not self._described.done():
            self._described.set_result(message)
            return
        try:
            self._events.on_tools(described_tools(self._name, message.get("tools")))
        except ProtocolError as error:
            self._note(f"tools that cannot be used ({error})")

    def _handle_unreadable(self, data: bytes | bytearray, error: UnreadableFrame) -> None:
        waiting = [self._waiting[request_id] for request_id in error.answers if request_id in self._waiting]
        for one in waiting:
            _fail(one, ProtocolError(f"The plugin '{self._name}' sent an answer that cannot be used: {error}.", code=error.code))
        if not waiting:
            shown = bytes(data[:_SHOWN_CHARS]).decode("utf-8", "backslashreplace")
            self._note(f"a line that is not a message ({error}): {shown}")

    def _note(self, what: str) -> None:
        self.noise += 1
        if self.noise <= _LOGGED_NOISE:
            self._events.log.warning("The plugin '%s' wrote %s; it is ignored", self._name, what)


def _resolve(waiting: asyncio.Future[Any] | None, value: object) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(value)


def _fail(waiting: asyncio.Future[Any], error: Exception) -> None:
    with suppress(asyncio.InvalidStateError):
        waiting.set_exception(error)
        waiting.exception()  # perhaps never awaited
