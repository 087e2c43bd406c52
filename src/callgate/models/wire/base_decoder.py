"""The base class of all decoders: bytes of a provider's answer in, events out.

Picks the framing (from the content type and the first bytes), decodes each frame as JSON, passes it to the API's own decoder, and turns
invalid data into a `Fault`: an odd frame ends a message, never the program.
"""

from __future__ import annotations

import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from typing import Any

import msgspec

from callgate._engine_limits import Limits
from callgate.models.model_events import ModelEvent
from callgate.models.wire.aws_event_stream import AwsEventStream
from callgate.models.wire.message_assembly import MessageAssembly
from callgate.models.wire.server_errors import MessageTooLarge, ServerError, is_retryable_code
from callgate.models.wire.stream_framing import FrameParser, FramingError, JsonLines, ServerSentEvents, WholeBody
from callgate.models.wire.tool_names import WireNames

__all__ = ["Decoder", "new_call_id"]

_decode = msgspec.json.Decoder().decode
_SHAPE_ERRORS = (TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError)
_END_SENTINELS = frozenset({b"[DONE]", b"DONE"})
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = re.compile(r"\s*")


def new_call_id() -> str:
    """Return an id for a call that the provider gave none, unique in practice."""
    return f"call_{secrets.token_hex(9)}"


class Decoder(ABC):
    """Decodes one answer. Feed it the body's bytes in any pieces, then close it; `Finished` is the last event.

    Args:
        content_type: Of the response; may be empty or wrong, the first bytes take precedence.
        streamed: Whether a stream was requested.
        names: Maps wire names back to the tools' own.
        new_id: Makes ids for calls without one.
        calls_per_message: Maximum number of calls.
        redact: Removes secrets before a frame is quoted in part.
        server: The server that sends the answer, if known.
        message: The message to read the answer into. None: a new one, to which the options above apply.
    """

    api: str

    def __init__(
        self,
        *,
        content_type: str = "",
        streamed: bool = True,
        names: WireNames | None = None,
        new_id: Callable[[], str] = new_call_id,
        calls_per_message: int = Limits().calls_per_message,
        redact: Callable[[str], str] = str,
        server: str = "",
        message: MessageAssembly | None = None,
    ) -> None:
        self.message = message or MessageAssembly(self.api, names or WireNames(), new_id, calls_per_message, server=server)
        self.redact = redact
        self._content_type = content_type
        self._streamed = streamed
        self._first_bytes = b""
        self._frames: FrameParser | None = None
        self._is_over = False
        self._end_seen = False
        self.waiting_bytes = 0
        """An upper bound of the bytes that have arrived and are not in a frame yet. The work of the next `feed`
        grows with it.
        """

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Decode the next bytes; return the events that they complete."""
        if not self._is_over:
            try:
                self._feed_frames(data)
            except (FramingError, MessageTooLarge) as error:
                self._report_broken(error)
        return self._take_events()

    def feed_body(self, value: Mapping[str, object]) -> list[ModelEvent]:
        """Decode the whole answer from JSON data instead of bytes; return its events."""
        self._end_seen = True
        return self._feed_value(self.read_body, value)

    def feed_frame(self, value: Mapping[str, object]) -> list[ModelEvent]:
        """Decode the next frame of a stream from JSON data instead of bytes; return the events that it completes."""
        return [] if self.done else self._feed_value(partial(self.read_frame, ""), value)

    @property
    def done(self) -> bool:
        """Whether data that may still arrive would be ignored."""
        return self._is_over or self._end_seen

    def close(self, *, broken: bool = False) -> list[ModelEvent]:
        """End the body; the last event is `Finished`. Idempotent.

        Args:
            broken: The body was abandoned, or the connection broke: an incomplete frame is ignored.
        """
        if not self._is_over:
            self._is_over = True
            try:
                if not broken:
                    self._flush_frames()
            except (FramingError, MessageTooLarge) as error:
                self._report_broken(error)
        if not self.message.finished:
            self.join_pieces()
        self.message.finish(complete=self._end_seen)
        return self._take_events()

    # Implemented, or called, by the decoder of an API

    @abstractmethod
    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        """Read one frame of a stream. May raise any error that malformed data causes."""

    @abstractmethod
    def read_body(self, value: Mapping[str, object]) -> None:
        """Read an answer that arrived as one body."""

    def framing(self, content_type: str, *, streamed: bool) -> FrameParser:
        """Return the framing of this API's answers, used if the first bytes do not say otherwise."""
        return ServerSentEvents() if streamed else WholeBody()

    def report_error(self, error: ServerError) -> None:
        """Report an error that the server sent."""
        self.message.add_fault(error.code, error.message, retryable=is_retryable_code(error.code))

    def join_pieces(self) -> None:  # noqa: B027  most APIs have no pieces to join
        """Called at the end of the body: join pieces that belong neither to a call nor to a text."""

    def end_stream(self) -> None:
        """Called at the API's own last frame: ignore what follows."""
        self._end_seen = True

    def _feed_value(self, read: Callable[[Mapping[str, object]], None], value: Mapping[str, object]) -> list[ModelEvent]:
        try:
            self._guard(read, value)
        except MessageTooLarge as error:
            self._report_broken(error)
        return self._take_events()

    def _feed_frames(self, data: bytes) -> None:
        if self._frames is None:
            self._first_bytes = (self._first_bytes + data).lstrip().removeprefix(_BYTE_ORDER_MARK)
            if _is_undecided(self._first_bytes):
                return
            data, self._first_bytes = self._first_bytes, b""
            self._frames = self._choose_framing(data)
        frames = self._frames.feed(data)
        self.waiting_bytes = len(data) + (0 if frames else self.waiting_bytes)
        for event, payload in frames:
            self._decode_frame(event, payload)

    def _flush_frames(self) -> None:
        if self._frames is None:
            if not self._first_bytes:
                return
            self._frames = WholeBody()
            self._frames.feed(self._first_bytes)
        frames = self._frames.close()
        if isinstance(self._frames, WholeBody):
            self._decode_body(frames[0][1])
            return
        for event, payload in frames:
            self._decode_frame(event, payload)

    def _choose_framing(self, first: bytes) -> FrameParser:
        frames = self.framing(self._content_type, streamed=self._streamed)
        begin = first[:1]
        if first[:2] in (b"{\n", b"{\r"):
            return WholeBody()  # indented JSON
        if begin == b"<":
            return WholeBody()  # an HTML page, whatever the content type
        if begin in (b"{", b"["):
            return WholeBody() if isinstance(frames, (ServerSentEvents, AwsEventStream)) else frames
        if first.startswith(_SSE_STARTS):
            return ServerSentEvents()
        if begin == b"\0" and isinstance(frames, WholeBody):
            return AwsEventStream()
        return frames

    def _decode_frame(self, event: str, payload: bytes) -> None:
        if self._end_seen:
            return
        try:
            value = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if not event and _are_all_json(lines := payload.split(b"\n")):  # events without empty lines between them
                for line in lines:
                    self._decode_frame("", line)
                return
            value = self._decode_unusual_frame(payload.strip())
        if isinstance(value, dict):
            try:
                self.read_frame(event, value)
            except _SHAPE_ERRORS as error:
                self._report_shape_error(error)

    def _decode_unusual_frame(self, text: bytes) -> object:
        """Decode a frame that is not plain JSON: empty, the end sentinel, or JSON that only the lenient decoder accepts."""
        if text in _END_SENTINELS:
            self.end_stream()
            return None
        value = self._lenient_json(text) if text else None
        if value is _UNREADABLE:
            self.message.add_fault(
                "bad_frame", f"A frame of the answer is not JSON: {self.redact(text.decode('utf-8', 'replace'))[:200]!r}"
            )
        return value

    def _decode_body(self, body: bytes) -> None:
        value = self._lenient_json(body.strip())
        if value is _UNREADABLE:
            self._decode_values(body)
        elif isinstance(value, list):  # a stream that was requested as one list
            for item in value:
                self._guard(partial(self.read_frame, ""), item)
            self._end_seen = True
        elif isinstance(value, dict):
            self._end_seen = True
            self._guard(self.read_body, value)

    def _decode_values(self, body: bytes) -> None:
        """Decode a body of several values: one per line, or one after the other."""
        frames = JsonLines()
        lines = [*frames.feed(body), *frames.close()]
        if len(lines) > 1 and _decode_json(lines[0][1].strip()) is not _UNREADABLE:
            for event, payload in lines:
                self._decode_frame(event, payload)
            return
        self.message.leniently_decoded = True
        values, rest = _split_values(body.decode("utf-8", "replace"))
        for value in values:
            self._guard(partial(self.read_frame, ""), value)
        if rest.startswith("<"):
            self.message.add_fault(
                "bad_frame", f"The answer is an HTML page, not JSON: {self.redact(rest)[:120]!r}. Check the URL of the request."
            )
        elif rest:
            self.message.add_fault("bad_frame", f"The answer is not JSON: {self.redact(rest)[:200]!r}")

    def _lenient_json(self, text: bytes) -> object:
        self.message.leniently_decoded = True
        return _decode_json(text)

    def _guard(self, read: Callable[[Any], None], value: object) -> None:
        """Read a value, of any type. One that `read` cannot read is a fault of the message."""
        try:
            read(value)
        except _SHAPE_ERRORS as error:
            self._report_shape_error(error)

    def _report_shape_error(self, error: Exception) -> None:
        self.message.add_fault("bad_frame", f"A frame of the answer does not have the shape of a frame of {self.api} ({error!r}).")

    def _report_broken(self, error: FramingError | MessageTooLarge) -> None:
        self._is_over = True
        self.message.add_fault(error.code, str(error))

    def _take_events(self) -> list[ModelEvent]:
        events, self.message.events = self.message.events, []
        return events


_UNREADABLE = object()


def _finite_number(text: str) -> object:
    """Parse a JSON number; an infinite one stays text, since JSON could only write it as null."""
    number = float(text)
    return number if isfinite(number) else text


_lenient_decoder = json.JSONDecoder(strict=False, parse_constant=str, parse_float=_finite_number)


def _is_undecided(begin: bytes) -> bool:
    """Whether the first bytes do not yet determine the framing."""
    return begin in (b"", b"{") or any(mark.startswith(begin) and mark != begin for mark in (*_SSE_STARTS, _BYTE_ORDER_MARK))


def _are_all_json(lines: list[bytes]) -> bool:
    return len(lines) > 1 and all(line.strip() in _END_SENTINELS or _decode_json(line) is not _UNREADABLE for line in lines)


def _decode_json(text: bytes) -> object:
    """Decode JSON, leniently if msgspec refuses it: the standard library accepts bad UTF-8 and raw control characters."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _lenient_decoder.decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return _UNREADABLE


def _split_values(text: str) -> tuple[list[object], str]:
    """Return the JSON values that `text` begins with, and the rest."""
    values: list[object] = []
    at = _after_space(text, 0)
    try:
        while at < len(text):
            value, end = _lenient_decoder.raw_decode(text, at)
            values.append(value)
            at = _after_space(text, end)
    except (ValueError, RecursionError):
        pass
    return values, text[at:]


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
