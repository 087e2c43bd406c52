"""Changes of HTTP messages, as somebody would make them who wants two parsers to read a message differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

__all__ = ["changed", "pieces", "with_each_line"]

_LINES = (
    *(
        b"Content-Length: 0",
        b"Content-Length: 7",
        b"content-length: +7",
        b"Content-Length: 7, 7",
        b"Content-Length: ",
        b"content-length: 2",
    ),
    *(
        b"Transfer-Encoding: chunked",
        b"transfer-encoding: identity",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: xchunked",
    ),
    *(
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding:\tchunked",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding: Chunked ",
    ),
    b" Transfer-Encoding: chunked",
    *(
        b"Connection: close",
        b"Connection: keep-alive",
        b"Connection: upgrade\r\nUpgrade: h2c",
        b"Expect: 100-continue",
        b"Connection: x, close",
    ),
    *(
        b"Host: other",
        b"Host:",
        b"X: ",
        b": empty",
        b"a b: c",
        b"\xe9: c",
        b"x: \xe9",
        b" folded",
        b"\tfolded",
        b"X:\tx\t",
        b"X: a\0b",
        b"",
    ),
    *(b"HTTP/1.1 100 Continue\r\n", b"HTTP/1.1 204 No Content\r\n", b"GET / HTTP/1.1\r\nHost: h\r\n"),
    *(b"0\r\n", b"00000000000\r\n", b"5;a=b", b"7", b"fffffffff", b"0x7", b"0\r\nx: y\r\n", b"-1", b"1\r\nx"),
)
_BYTES = (
    *(b"\r\n", b"\n", b"\r", b"\0", b"\t", b" ", b":", b",", b";", b"0", b"1", b"+", b"-", b"%", b"\xff", b"\x0b", b"\x7f", b"?", b"#"),
    *(b"\r\n ", b"\r\n\t", b" :", b"\r\n\r\n", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2.0", b"http/1.1", b""),
)


def with_each_line(message: bytes) -> Iterator[bytes]:
    """Yield the message with one more line, or another one, for each line and each place, and without each of its lines."""
    lines = message.split(b"\r\n")
    for at in range(len(lines)):
        yield b"\r\n".join([*lines[:at], *lines[at + 1 :]])
        for line in (*_LINES, lines[at]):
            yield b"\r\n".join([*lines[: at + 1], line, *lines[at + 1 :]])
            yield b"\r\n".join([*lines[:at], line, *lines[at + 1 :]])


@st.composite
def changed(draw: st.DrawFn, messages: Sequence[bytes]) -> bytes:
    """Draw a message with a few lines or bytes inserted, removed, replaced or repeated."""
    data = draw(st.sampled_from(messages))
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            lines = data.split(b"\r\n")
            at = draw(st.integers(0, len(lines) - 1))
            one = lines[at]
            lines[at : at + 1] = draw(st.sampled_from(([one, one], [], *([one, line] for line in _LINES))))
            data = b"\r\n".join(lines)
        else:
            start = draw(st.integers(0, len(data)))
            data = data[:start] + draw(st.sampled_from(_BYTES)) + data[start + draw(st.integers(0, 2)) :]
    return data


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Draw how the bytes arrive."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [part for part in parts if part]
