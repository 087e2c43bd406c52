"""Read the answer to one request from HTTP responses: a JSON body, an event stream, or a refusal.

A status from 400 to 499 proves that the server has not acted on the request, unless its body answers it. Sends nothing.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable

from callgate.mcp._connection import LOOK_FIRST, ConnectionEvents, ConnectionLost, McpError, Message, NotSent, ProtocolError
from callgate.mcp._event_stream import EventStream, EventTooLarge, pause_between_events
from callgate.mcp._http_exchange import HttpExchange, StreamedResponse, status_text
from callgate.mcp._messages import MAX_MESSAGE_BYTES, UnreadableMessage, answer_id, read_message, response_fault

__all__ = ["EVENT_STREAM", "PendingAnswer", "RequestRefused"]

EVENT_STREAM = "text/event-stream"
_JSON = "application/json"
_RESERVED_ERRORS = range(-32099, -32019)
"""The error codes that revision 2026-07-28 reserves. They answer the request also if they do not repeat its id."""
_TOO_LATE = frozenset({408, 499})
"""Statuses with which a proxy gives up on a request that the server may have got."""
_GATEWAY_FAILURES = frozenset({502, 503, 504})
"""Statuses with which a proxy says that it cannot reach the server now."""
_PASSING = frozenset({409, 423, 425, 429})
"""Refusals that may pass without a change of the configuration."""


class RequestRefused(NotSent):
    """The server has refused the HTTP request, and has not acted on it."""

    def __init__(self, message: str, *, status: int, reason: str) -> None:
        super().__init__(message, details={"http_status": status}, retryable=status in _PASSING)
        self.status = status
        self.reason = reason
        """The message of the JSON-RPC error, if there is one. Written by the server."""


class PendingAnswer:
    """The answer to one request while it arrives, in one response or in several that continue each other.

    Args:
        exchange: Where the responses come from.
        request_id: The id of the request.
        on_message: Called with notifications and requests of the server that come before the answer.
        events: Counts what is ignored.
    """

    __slots__ = ("_events", "_exchange", "_on_message", "_request_id", "stream")

    def __init__(self, exchange: HttpExchange, request_id: int, on_message: Callable[[Message], None], events: ConnectionEvents) -> None:
        self.stream = EventStream(MAX_MESSAGE_BYTES)
        self._exchange = exchange
        self._request_id = request_id
        self._on_message = on_message
        self._events = events

    async def read(self, response: StreamedResponse) -> Message | None:
        """Return the answer, or None if an event stream ended before it.

        Raises:
            NotSent: The server has refused the request.
            ConnectionLost: The connection ended before the response was complete.
            ProtocolError: The response is not an answer.
        """
        if not 200 <= response.status < 300:
            return await self._read_refusal(response)
        if response.content_type == EVENT_STREAM:
            return await self._read_stream(response)
        if response.content_type != _JSON:
            raise self._wrong_content_type(response)
        try:
            message = await _read_body(response)
        except UnreadableMessage as error:
            raise self._unreadable_error(error) from error
        return self._check(message)

    def missing_answer_error(self) -> ConnectionLost:
        """Return the error for a stream that ended before the answer."""
        return ConnectionLost(f"{self._exchange.label} ended the stream without an answer. {LOOK_FIRST}")

    async def _read_stream(self, response: StreamedResponse) -> Message | None:
        self.stream.restart()
        while chunk := await response.read_chunk():
            try:
                events = self.stream.feed(chunk)
            except EventTooLarge as error:
                text = f"{self._exchange.label} sent more than {MAX_MESSAGE_BYTES} bytes in one event. The rest was not read."
                raise ProtocolError(text, code="output_too_large") from error
            for number, event in enumerate(events):
                await pause_between_events(number)
                if (answer := self._read_event(event)) is not None:
                    return answer
        return None

    def _read_event(self, event: bytes) -> Message | None:
        """Return the message of an event if it is the answer; pass on any other."""
        try:
            message = read_message(event)
        except UnreadableMessage as error:
            if self._request_id in error.answers:
                raise self._unreadable_error(error) from error
            self._events.on_noise(f"an event that is not a message: {error}")
            return None
        if "method" not in message:
            return self._check(message)
        self._on_message(message)
        return None

    def _check(self, message: Message) -> Message:
        """Return the message if it answers the request."""
        fault = response_fault(message)
        if not fault and answer_id(message) != self._request_id:
            fault = f"it has the id {message.get('id')!r:.50} of another request{self._quote_error(message)}"
        if fault:
            raise ProtocolError(f"{self._exchange.label} sent an answer that is not valid: {fault}. {LOOK_FIRST}")
        return message

    def _quote_error(self, message: Message) -> str:
        """Return the text of an error as an addition to a sentence; empty if there is none."""
        text = self._exchange.redact(str(message["error"].get("message", ""))) if "error" in message else ""
        return f" and says {text!r}" if text else ""

    async def _read_refusal(self, response: StreamedResponse) -> Message:
        """Return the answer in a response whose status is not a success.

        Raises:
            NotSent: The server has refused the request.
            ProtocolError: The server may have acted on the request.
        """
        reason = ""
        if response.content_type == _JSON:
            message = await self._decode_response(response)
            error = message.get("error", {})
            if "result" in message and answer_id(message) == self._request_id:
                raise self._wrong_content_type(response)
            if "error" in message and (answer_id(message) == self._request_id or error.get("code") in _RESERVED_ERRORS):
                return {**message, "id": self._request_id}
            reason = error.get("message", "")
        if not 400 <= response.status < 500 or response.status in _TOO_LATE:
            raise self._wrong_content_type(response)
        raise self.refusal_error(response, reason)

    def refusal_error(self, response: StreamedResponse, reason: str) -> RequestRefused:
        """Return the error for a response with which the server has refused the request.

        Args:
            reason: The message of the JSON-RPC error in it; empty if there is none.
        """
        shown = f"{self._exchange.label} answered {status_text(response.status)} at {self._exchange.shown_url}"
        said = f" and says {self._exchange.redact(reason)!r}" if reason else ""
        return RequestRefused(f"{shown}{said}. {self._next_step(response)}", status=response.status, reason=reason)

    async def _decode_response(self, response: StreamedResponse) -> Message:
        """Return the JSON-RPC response in the body of an HTTP response; empty if there is none."""
        try:
            message = await _read_body(response)
        except (UnreadableMessage, McpError):
            return {}
        return {} if response_fault(message) else message

    def _next_step(self, response: StreamedResponse) -> str:
        if response.status in (401, 403) and self._exchange.uses_oauth:
            return "It does not accept the access token. Ask its operator what the user lacks."
        if response.status in (401, 403):
            given = ", ".join(f"'{name}'" for name in self._exchange.given_headers)
            if given:
                return f"It does not accept the headers that it is sent: {given}. Correct their values in `headers` of the server."
            if "resource_metadata" in response.header("www-authenticate"):
                return "It logs its users in with OAuth: use it in a program, with `auth`, or give a token of yours in `headers`."
            return "It wants credentials. Give them in `headers` of the server, such as 'Bearer TOKEN' for Authorization."
        if response.status in (404, 405):
            return "It does not speak MCP there. Check the path of the address, which often is /mcp."
        if response.status == 429:
            after = response.header("retry-after")
            return f"It is asked too often. Ask again {f'after {after} s' if after.isdecimal() else 'later'}."
        if response.status == 407:
            return "A proxy wants credentials: give them in its address, as in HTTP_PROXY=http://user:password@host:port."
        return "It did nothing. Look for the cause in the log of the server."

    def _wrong_content_type(self, response: StreamedResponse) -> ProtocolError:
        kind = response.content_type[:100] or "no content type"
        return ProtocolError(
            f"{self._exchange.label} answered {status_text(response.status)} with {kind} at {self._exchange.shown_url}, which is "
            f"no answer. {LOOK_FIRST}",
            details={"http_status": response.status},
            retryable=response.status in _GATEWAY_FAILURES,
        )

    def _unreadable_error(self, error: UnreadableMessage) -> ProtocolError:
        return ProtocolError(f"{self._exchange.label} sent an answer that cannot be read: {error}. {LOOK_FIRST}", code=error.code)


async def _read_body(response: StreamedResponse) -> Message:
    """Return the message in a body, which may begin with a byte order mark."""
    return read_message((await response.read(MAX_MESSAGE_BYTES)).removeprefix(BOM_UTF8))
