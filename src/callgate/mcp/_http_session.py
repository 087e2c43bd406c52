"""A session of the revisions from 2025-03-26 to 2025-11-25 over HTTP: its id, its streams, and its renewal.

The server names the session in its answer to `initialize`, and may forget it, for example when it restarts. It then refuses requests, which
proves that it has not acted on them: the session is opened again, and the request is sent again. Revision 2026-07-28 has no sessions.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context

from callgate._backoff import backoff_s
from callgate.mcp._connection import LOOK_FIRST, ConnectionEvents, ConnectionLost, McpError, Message, NotSent
from callgate.mcp._event_stream import EventStream, EventTooLarge, pause_between_events
from callgate.mcp._http_answers import EVENT_STREAM, PendingAnswer, RequestRefused
from callgate.mcp._http_exchange import HttpExchange, StreamedResponse, status_text
from callgate.mcp._messages import (
    INVALID_PARAMS,
    MAX_MESSAGE_BYTES,
    METHOD_NOT_FOUND,
    UnreadableMessage,
    encoded,
    notification,
    read_message,
)

__all__ = ["POST_HEADERS", "HttpSession"]

POST_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_GET_HEADERS = {"accept": EVENT_STREAM, "cache-control": "no-store"}
_INITIALIZED = "notifications/initialized"
_TOOLS_CHANGED = "notifications/tools/list_changed"

_NOTIFY_S = 10.0
_DELETE_S = 2.0
_RETRY_S = 1.0
_SHORTEST_RETRY_S = 0.01
_LONGEST_RETRY_S = 60.0
_BROKEN_WAITS_S = (0.1, 0.5)
"""The waits before the attempts to continue a stream that broke off. Together less than a second, to report a crash of the server soon."""
_SESSION_ID = re.compile(r"[!-~]{1,1024}")

_ERRORS_OF_REQUESTS = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, -32002})
"""Errors that some servers send with the status 404 although the session continues. -32002: there is no such resource."""


class HttpSession:
    """The session with one server. Bound to one event loop.

    Args:
        events: Gets the messages of the stream that belongs to no request.
        open_s: Seconds for opening the session again.
        lose: Called with the reason when the session cannot be opened again.
    """

    def __init__(self, exchange: HttpExchange, events: ConnectionEvents, open_s: float, lose: Callable[[str], None]) -> None:
        self.revision = ""
        """The negotiated revision; empty before the negotiation."""
        self._exchange = exchange
        self._events = events
        self._open_s = open_s
        self._lose = lose
        self._id = ""
        self._initialize: Message = {}
        self._initialized: Message = {}
        self._opening = asyncio.Lock()
        self._listener: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server has opened a session, which it need not do."""
        return bool(self._id)

    async def request(self, message: Message, on_message: Callable[[Message], None]) -> Message:
        """Send a request and return its answer; open the session again if the server has forgotten it.

        Raises: as `ServerConnection.request`.
        """
        if message["method"] == "initialize":
            self._initialize = message
            return await self._open(message, on_message)
        if self._opening.locked():  # a server may refuse requests until its new session is confirmed
            async with self._opening:
                pass
        used = self._id
        try:
            return await self._ask(message, on_message)
        except RequestRefused as refused:
            if not used or not _session_is_gone(refused):
                raise
        await self._open_again(used)
        return await self._ask(message, on_message)

    async def notify(self, message: Message) -> None:
        """Send a notification or an answer, in bounded time. If the server does not take it, that is logged."""
        try:
            async with asyncio.timeout(_NOTIFY_S):
                await self._post(message)
        except (McpError, TimeoutError) as error:
            said = str(error) or f"no answer within {_NOTIFY_S:g} s"
            self._events.log.debug("%s did not take %s: %s", self._exchange.label, message.get("method", "an answer"), said)
        if message.get("method") == _INITIALIZED:
            self._initialized = message
            self._listen()

    async def close(self) -> None:
        """End the session, in bounded time. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
        if self._id:
            with suppress(McpError, TimeoutError):
                async with asyncio.timeout(_DELETE_S):
                    response = await self._exchange.send("DELETE", self._headers({}))
                    await response.release()
            self._id = ""

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return `headers` with those of the session."""
        found = {**headers}
        if self.revision:
            found["mcp-protocol-version"] = self.revision
        if self._id:
            found["mcp-session-id"] = self._id
        return found

    async def _open(self, message: Message, on_message: Callable[[Message], None]) -> Message:
        """Send `initialize`, and remember the session that the server opens."""
        answer = PendingAnswer(self._exchange, message["id"], on_message, self._events)
        response = await self._exchange.send("POST", POST_HEADERS, encoded(message))
        try:
            found = await answer.read(response)
        finally:
            await response.release()
        if found is None:
            raise answer.missing_answer_error()
        session_id = response.header("mcp-session-id")
        self._id = session_id if _SESSION_ID.fullmatch(session_id) else ""
        return found

    async def _open_again(self, used: str) -> None:
        """Open a new session in place of `used`, unless another request has done so.

        Raises:
            NotSent: The server opens no session, or one of another revision.
        """
        async with self._opening:
            if self._id != used:
                return
            self._events.log.info("%s has ended the session; a new one is opened.", self._exchange.label)
            try:
                async with asyncio.timeout(self._open_s):
                    answer = await self._open(self._initialize, self._events.on_message)
            except (McpError, TimeoutError) as error:
                said = str(error) or f"it did not answer within {self._open_s:g} s."
                raise NotSent(f"{self._exchange.label} has ended the session, and opens no new one: {said}") from error
            result = answer.get("result")
            if not isinstance(result, dict) or result.get("protocolVersion") != self.revision:
                reason = f"{self._exchange.label} has ended the session, and its new one does not use revision {self.revision}."
                self._lose(reason)
                raise NotSent(f"{reason} Ask again when it has been started again.")
            await self.notify(self._initialized)
        self._events.on_message(notification(_TOOLS_CHANGED))  # changes since the previous session were not reported to this one

    async def _post(self, message: Message) -> None:
        response = await self._exchange.send("POST", self._headers(POST_HEADERS), encoded(message))
        try:
            await response.read(MAX_MESSAGE_BYTES)
        finally:
            await response.release()
        if response.status >= 400:
            raise NotSent(status_text(response.status))

    async def _ask(self, message: Message, on_message: Callable[[Message], None]) -> Message:
        """Send a request and return its answer, also if the server ends its stream and continues it over another connection."""
        answer = PendingAnswer(self._exchange, message["id"], on_message, self._events)
        response = await self._exchange.send("POST", self._headers(POST_HEADERS), encoded(message))
        while True:
            try:
                found = await answer.read(response)
                if found is not None and _ends_session(response.status, found):
                    raise answer.refusal_error(response, found["error"]["message"])
                if found is not None:
                    await response.release_after_end()
                    return found
                lost, broken = answer.missing_answer_error(), False
            except ConnectionLost as error:
                lost, broken = error, True
            except BaseException:
                await response.release()
                raise
            await response.release()
            if not answer.stream.last_event_id:
                raise lost
            response = await self._continue(answer.stream, broken)

    async def _continue(self, stream: EventStream, broken: bool) -> StreamedResponse:
        """Return a response with the rest of a request's stream.

        Args:
            broken: Whether the connection broke. Else the server has ended it, and says when it wants to be asked again.

        Raises:
            ConnectionLost: The server does not continue the stream.
        """
        first_s, second_s = _BROKEN_WAITS_S
        for wait_s in (first_s if broken else _wait_s(stream, 0), second_s):
            await asyncio.sleep(wait_s)
            try:
                response = await self._exchange.send("GET", self._stream_headers(stream))
            except McpError:
                continue
            if response.status == 200 and response.content_type == EVENT_STREAM:
                return response
            await response.release()
            if response.status < 500:
                break
        raise ConnectionLost(f"{self._exchange.label} ended the stream of a request and does not continue it. {LOOK_FIRST}")

    def _stream_headers(self, stream: EventStream) -> dict[str, str]:
        headers = self._headers(_GET_HEADERS)
        if stream.last_event_id:
            headers["last-event-id"] = stream.last_event_id
        return headers

    def _listen(self) -> None:
        """Start the task that receives what belongs to no request, or restart it for a new session."""
        if self._listener is asyncio.current_task():
            return
        if self._listener is not None:
            self._listener.cancel()
        self._listener = asyncio.get_running_loop().create_task(self._receive_messages(), context=Context())

    async def _receive_messages(self) -> None:
        """Receive the messages that belong to no request, over one connection after the other, as long as the server offers that."""
        stream, used, failures, offered = EventStream(MAX_MESSAGE_BYTES), self._id, 0, False
        while True:
            try:
                response = await self._exchange.send("GET", self._stream_headers(stream))
                try:
                    if response.status == 200 and response.content_type == EVENT_STREAM:
                        failures, offered = 0, True
                        await self._receive(response, stream)
                    elif response.status == 404 and offered and used:
                        await self._open_again(used)
                        stream, used = EventStream(MAX_MESSAGE_BYTES), self._id
                    elif response.status < 500:
                        return
                    else:
                        failures += 1
                finally:
                    await response.release()
            except McpError:
                failures += 1
            await asyncio.sleep(_wait_s(stream, failures))

    async def _receive(self, response: StreamedResponse, stream: EventStream) -> None:
        """Pass on the messages of one response of the stream that belongs to no request."""
        stream.restart()
        while chunk := await response.read_chunk():
            try:
                events = stream.feed(chunk)
            except EventTooLarge as error:
                self._events.on_noise(f"{error}")
                return
            for number, event in enumerate(events):
                await pause_between_events(number)
                self._pass_on(event)

    def _pass_on(self, event: bytes) -> None:
        try:
            message = read_message(event)
        except UnreadableMessage as error:
            self._events.on_noise(f"an event that is not a message: {error}")
            return
        if "method" in message:
            self._events.on_message(message)
        else:
            self._events.on_noise("an answer that no request waits for")


def _ends_session(status: int, answer: Message) -> bool:
    """Whether an answer with the status of a refusal says that the server does not know the session, and not how the request has ended."""
    error = answer.get("error")
    if error is None or status not in (400, 404):
        return False
    about_session = "session" in str(error.get("message", "")).lower()
    return about_session or (status == 404 and error.get("code") not in _ERRORS_OF_REQUESTS)


def _session_is_gone(refused: RequestRefused) -> bool:
    """Whether a server says that it does not know the session: by the status 404, or as many do, by 400 and a text."""
    return refused.status == 404 or (refused.status == 400 and "session" in refused.reason.lower())


def _wait_s(stream: EventStream, failures: int) -> float:
    """Return the seconds before the next connection of a stream."""
    if failures:
        return backoff_s(failures, base_s=_RETRY_S, max_s=_LONGEST_RETRY_S)
    if stream.retry_ms is None:
        return _RETRY_S
    return min(max(stream.retry_ms / 1000, _SHORTEST_RETRY_S), _LONGEST_RETRY_S)
