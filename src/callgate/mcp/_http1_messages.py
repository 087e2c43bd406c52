"""One request to an HTTP/1.1 server and its response, as bytes: simple ones are written and read here, all others with h11.

h11 begins with the head of a response, or between two chunks of its body, and then reads the rest. Up to there it would have read the same,
which a test verifies with changed responses. Sends and receives nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from callgate.mcp._http1_heads import is_simple, simple_head

if TYPE_CHECKING:
    import h11

__all__ = ["ClientMessages", "ResponseHead", "UnreadableResponse", "UnsendableRequest"]

_MAX_HEAD_BYTES: Final = 100 * 1024
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9])(?: .*)?")
_NO_BODY: Final = frozenset({204, 304})
_REQUEST_LINE: Final = re.compile(rb"(?:GET|POST|DELETE) [!-~]+ HTTP/1\.1")
_FRAMING: Final = frozenset({"connection", "content-length", "expect", "transfer-encoding", "upgrade"})
"""Request headers about which h11 decides."""

_CHUNK_LINES: Final = (re.compile(rb"([0-9a-fA-F]{1,8})\r\n"), re.compile(rb"\r\n([0-9a-fA-F]{1,8})\r\n"))
"""The line before the first chunk, and the one between two chunks."""
_CHUNK_LINE_PARTS: Final = (
    re.compile(rb"|[0-9a-fA-F]{1,8}\r?|0{1,8}\r\n\r?"),
    re.compile(rb"\r?|\r\n(?:|[0-9a-fA-F]{1,8}\r?|0{1,8}\r\n\r?)"),
)
"""Incomplete bytes of these lines, or of the end of the body."""
_CHUNKED_HEAD: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_ONE_CHUNK: Final = b"1\r\n-"


class ResponseHead(Struct, frozen=True, eq=False):
    """The head of a response, which is not the last one if its status is less than 200."""

    status: int
    headers: dict[str, str]
    """By their names in lower case. Values of a name that occurs more than once are joined by commas."""


_Part = ResponseHead | bytes | EllipsisType | None


class UnsendableRequest(Exception):
    """A header of a request cannot be sent."""


class UnreadableResponse(Exception):
    """The bytes received are not HTTP, or the connection ended before the end of the response."""


class ClientMessages:
    """A request and its response.

    Args:
        headers: By their names in lower case; the first one is `host`.
    """

    def __init__(self, method: str, target: bytes, headers: Mapping[str, str], body: bytes) -> None:
        self._method, self._target, self._headers, self._body = method, target, headers, body
        self._http: h11.Connection | None = None
        """Reads the response, if it is not simple."""
        self._received = bytearray()
        self._ended = False
        self._in_body = self._chunked = self._has_chunks = False
        self._left_bytes = 0
        """How much of the body, or of the chunk, has not been taken."""
        self._complete = False

    def request(self) -> bytes:
        """Return the bytes of the request.

        Raises:
            UnsendableRequest: A header cannot be sent.
        """
        first_line = b"%b %b HTTP/1.1" % (self._method.encode(), self._target)
        headers = self._headers_to_send()
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        if not lines.isascii() or not _FRAMING.isdisjoint(self._headers) or _REQUEST_LINE.fullmatch(first_line) is None:
            return self._begin_h11()
        head = b"%b\r\n%b\r\n" % (first_line, lines.encode())
        return head + self._body if is_simple(head, len(headers)) else self._begin_h11()

    def receive(self, data: bytes) -> None:
        """Receive bytes of the server; no bytes mean the end of the connection."""
        self._ended = self._ended or not data
        if self._http is None:
            self._received += data
        else:
            self._http.receive_data(data)

    def next_part(self) -> _Part:
        """Return the next part of the response: a head, bytes of the body, None after them, or an ellipsis if more has to come first.

        Raises:
            UnreadableResponse: See there.
        """
        if self._http is not None:
            return self._next_of_h11(self._http)
        if not self._in_body:
            return self._next_head()
        if self._left_bytes:
            return self._next_bytes()
        if self._chunked:
            return self._next_chunk()
        self._complete = True
        return None

    def is_reusable(self) -> bool:
        """Return whether the connection can be used for another request: the response is complete, and nothing has followed it."""
        if self._http is None:
            return self._complete and not self._received and not self._ended
        import h11

        try:
            self._http.start_next_cycle()
        except h11.LocalProtocolError:
            return False
        return self._http.trailing_data == (b"", False)

    def _headers_to_send(self) -> list[tuple[str, str]]:
        headers = list(self._headers.items())
        if self._body or self._method == "POST":
            headers.append(("content-length", str(len(self._body))))
        return headers

    # Simple responses

    def _next_head(self) -> _Part:
        if not self._received and not self._ended:
            return ...
        head = simple_head(self._received, _MAX_HEAD_BYTES)
        line = None if head is None else _STATUS_LINE.fullmatch(head.first_line)
        if head is None or line is None or int(line[1]) in _NO_BODY:
            return self._next_of_h11(self._hand_over())
        del self._received[: head.size_bytes]
        self._in_body, self._chunked, self._left_bytes = True, head.body_bytes is None, head.body_bytes or 0
        return ResponseHead(int(line[1]), {name.decode("ascii"): value.decode("ascii") for name, value in head.headers.items()})

    def _next_bytes(self) -> _Part:
        data = bytes(self._received[: self._left_bytes])
        if not data and self._ended:
            raise UnreadableResponse("peer closed connection without sending complete message body")
        del self._received[: len(data)]
        self._left_bytes -= len(data)
        return data or ...

    def _next_chunk(self) -> _Part:
        line = _CHUNK_LINES[self._has_chunks].match(self._received)
        size_bytes = 0 if line is None else int(line[1], 16)
        if line is not None and size_bytes:
            del self._received[: line.end()]
            self._left_bytes, self._has_chunks = size_bytes, True
            return self._next_bytes()
        if line is not None and self._received.startswith(b"\r\n", line.end()):
            del self._received[: line.end() + 2]
            self._complete = True
            return None
        if not self._ended and _CHUNK_LINE_PARTS[self._has_chunks].fullmatch(self._received):
            return ...
        return self._next_of_h11(self._hand_over())

    # Other responses, read by h11

    def _begin_h11(self) -> bytes:
        """Return the request as h11 writes it; h11 then reads the response."""
        import h11

        http: Any = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        try:
            head = http.send(h11.Request(method=self._method, target=self._target, headers=self._headers_to_send()))
        except (h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise UnsendableRequest(str(error)) from error
        self._http = http
        return b"".join((head, http.send(h11.Data(data=self._body)) if self._body else b"", http.send(h11.EndOfMessage())))

    def _hand_over(self) -> h11.Connection:
        """Return an h11 connection that reads the rest of the response."""
        self._begin_h11()
        http = self._http
        assert http is not None
        if self._in_body:
            http.receive_data(_CHUNKED_HEAD + (_ONE_CHUNK if self._has_chunks else b""))
            http.next_event()
            if self._has_chunks:
                http.next_event()
        if self._received:
            http.receive_data(bytes(self._received))
        if self._ended:
            http.receive_data(b"")
        return http

    def _next_of_h11(self, http: h11.Connection) -> _Part:
        import h11

        try:
            event: Any = http.next_event()
        except h11.RemoteProtocolError as error:
            raise UnreadableResponse(str(error)) from error
        if event is h11.NEED_DATA:
            return ...
        if isinstance(event, (h11.Response, h11.InformationalResponse)):
            return ResponseHead(event.status_code, _join_headers(event.headers))
        return bytes(event.data) if isinstance(event, h11.Data) else None


def _join_headers(pairs: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
