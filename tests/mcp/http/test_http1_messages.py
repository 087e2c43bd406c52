"""What is read without h11 is what h11 reads, whatever a server sends and however it arrives."""

from __future__ import annotations

from typing import Any

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callgate.mcp._http1_messages import ClientMessages, ResponseHead, UnreadableResponse, UnsendableRequest
from tests.mcp.http.changed_bytes import changed, pieces, with_each_line

HEADERS = {"host": "127.0.0.1:80", "accept": "application/json", "content-type": "application/json"}
LENGTH = b'HTTP/1.1 200 OK\r\nDate: today\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
CHUNKS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n2\r\n\n\n\r\n0\r\n\r\n"
RESPONSES = (
    LENGTH,
    CHUNKS,
    b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n",
    b"HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + LENGTH,
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end",
    LENGTH + LENGTH,
)


class OnlyH11:
    """Reads a response to the same request with nothing but h11."""

    def __init__(self) -> None:
        self.connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=100 * 1024)
        headers = [*HEADERS.items(), ("content-length", "2")]
        self.connection.send(h11.Request(method="POST", target="/mcp", headers=headers))
        self.connection.send(h11.Data(data=b"{}"))
        self.connection.send(h11.EndOfMessage())

    def receive(self, data: bytes) -> None:
        self.connection.receive_data(data)

    def next_part(self) -> Any:
        try:
            event: Any = self.connection.next_event()
        except h11.RemoteProtocolError as error:
            raise UnreadableResponse(str(error)) from error
        if isinstance(event, (h11.Response, h11.InformationalResponse)):
            names = [name for name, _ in event.headers]
            values = {name: b", ".join(value for other, value in event.headers if other == name) for name in names}
            return ResponseHead(event.status_code, {name.decode(): value.decode("latin-1") for name, value in values.items()})
        if event is h11.NEED_DATA:
            return ...
        return bytes(event.data) if isinstance(event, h11.Data) else None

    def is_reusable(self) -> bool:
        try:
            self.connection.start_next_cycle()
        except h11.LocalProtocolError:
            return False
        return self.connection.trailing_data == (b"", False)


def read(messages: ClientMessages | OnlyH11, parts: list[bytes]) -> list[object]:
    """Return what is known of a response after each part that arrives: its heads, the body so far, and how it ended."""
    known: list[object] = []
    heads: list[object] = []
    body = b""
    for data in parts:
        messages.receive(data)
        while True:
            try:
                part = messages.next_part()
            except UnreadableResponse:
                return [*known, heads, body, "unreadable"]
            if part is ...:
                break
            if part is None:
                return [*known, heads, body, "complete", messages.is_reusable()]
            if isinstance(part, ResponseHead):
                heads.append((part.status, part.headers))
                if part.status == 101:
                    return [*known, heads]
            else:
                body += part
        known += [list(heads), body]
    return known


def simple() -> ClientMessages:
    messages = ClientMessages("POST", b"/mcp", HEADERS, b"{}")
    messages.request()
    return messages


@given(st.data())
def test_a_response_is_read_as_h11_reads_it(data: st.DataObject) -> None:
    parts = data.draw(pieces(data.draw(changed(RESPONSES))))
    parts += data.draw(st.sampled_from(([], [b""])))  # the end of the connection
    assert read(simple(), parts) == read(OnlyH11(), parts)


@pytest.mark.parametrize("response", RESPONSES)
def test_another_line_is_read_as_h11_reads_it(response: bytes) -> None:
    for data in with_each_line(response):
        assert read(simple(), [data]) == read(OnlyH11(), [data]), data


@pytest.mark.parametrize("response", [LENGTH, CHUNKS])
def test_a_simple_response_in_any_two_parts_is_complete_and_the_connection_stays(response: bytes) -> None:
    for at in range(1, len(response)):
        assert read(simple(), [response[:at], response[at:]])[-2:] == ["complete", True], at


@given(
    st.dictionaries(st.sampled_from(("x", "mcp-name", "X-Y", "a b", "host", "connection", "é")), st.text(max_size=6)),
    st.sampled_from(("GET", "POST", "DELETE", "P T")),
    st.sampled_from((b"/mcp", b"/a b", b"/", b"/a\r\nx: y")),
    st.binary(max_size=3),
)
@example({"x": "1\r\nevil: 2"}, "POST", b"/mcp", b"{}")
@example({"x": " 1"}, "POST", b"/mcp", b"{}")
@example({"x": ""}, "POST", b"/mcp", b"{}")
def test_a_request_is_written_as_h11_writes_it_or_refused_as_h11_refuses_it(
    more: dict[str, str], method: str, target: bytes, body: bytes
) -> None:
    headers = {"host": "h", **more}
    sent = [*headers.items()] + ([("content-length", str(len(body)))] if body or method == "POST" else [])
    connection = h11.Connection(h11.CLIENT)
    try:
        head = connection.send(h11.Request(method=method, target=target, headers=sent))
    except (h11.LocalProtocolError, UnicodeEncodeError):
        with pytest.raises(UnsendableRequest):
            ClientMessages(method, target, headers, body).request()
        return
    assert head is not None
    assert ClientMessages(method, target, headers, body).request() == head + body
