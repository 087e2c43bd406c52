"""Bytes of a provider's answer in, events out: what every API's decoder has in common.

Picks the framing (what was promised, then what really came), reads each frame as JSON, hands it to the API's own reading and turns
whatever that cannot bear into a `Fault`: a provider's odd frame ends a message, never the program.
"""

from __future__ import annotations

import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import isfinite

import msgspec

from callgate._limits import Limits
from callgate.models.events import ModelEvent
from callgate.models.wire.aws_event_stream import AwsEventStream
from callgate.models.wire.framing import FrameParser, FramingError, JsonLines, ServerSentEvents, WholeBody
from callgate.models.wire.message_assembly import MessageAssembly
from callgate.models.wire.server_errors import MessageTooLarge, ServerError, is_retryable_code
from callgate.models.wire.tool_names import WireNames

__all__ = ["Decoder", "new_call_id"]

_decode = msgspec.json.Decoder().decode
_ODD = (TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError)
_END_MARKS = frozenset({b"[DONE]", b"DONE"})
_EVENT_BEGINS = (b"data:", b"event:", b"id:", b"retry:", b":")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = re.compile(r"\s*")


def new_call_id() -> str:
    """An id for a call that the provider gave none, unique in practice."""
    return f"call_{secrets.token_hex(9)}"


class Decoder(ABC):
    """Reads one answer. Feed it the body's bytes, cut anywhere, then close it; `Finished` is the last event.

    Args:
        content_type: Of the response; may be empty or wrong, the first bytes decide where they say something else.
        streamed: Whether a stream was asked for.
        names: Gives tools their own names back.
        new_id: Makes ids for calls without one.
        calls_per_message: How many calls the message may have.
        redact: Removes what must not be shown; asked before a frame is quoted in part.
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
    ) -> None:
        self.message = MessageAssembly(self.api, names or WireNames(), new_id, calls_per_message)
        self.redact = redact
        self._content_type = content_type
        self._streamed = streamed
        self._head = b""
        self._frames: FrameParser | None = None
        self._over = False
        self._ended_well = False
        self.waiting_bytes = 0
        """At most so many bytes have come and are in no frame yet: about as much work as the next call of `feed` may be."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Take the next bytes; returns what they complete."""
        if not self._over:
            try:
                self._take(data)
            except (FramingError, MessageTooLarge) as error:
                self._broken(error)
        return self._told()

    @property
    def done(self) -> bool:
        """Whether nothing that may still come would count."""
        return self._over or self._ended_well

    def close(self, *, broken: bool = False) -> list[ModelEvent]:
        """The body has ended; the last event is `Finished`. Idempotent.

        Args:
            broken: It was given up, or the connection broke: the piece of a frame that is left is not looked at.
        """
        if not self._over:
            self._over = True
            try:
                if not broken:
                    self._rest()
            except (FramingError, MessageTooLarge) as error:
                self._broken(error)
        if not self.message.finished:
            self.join_pieces()
        self.message.finish(well=self._ended_well)
        return self._told()

    # What an API's decoder says

    @abstractmethod
    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        """Take one frame of a stream. May raise anything that odd data raises."""

    @abstractmethod
    def read_body(self, value: Mapping[str, object]) -> None:
        """Take an answer that came as one body."""

    def framing(self, content_type: str, *, streamed: bool) -> FrameParser:
        """How this API cuts its answers, where the first bytes do not say otherwise."""
        return ServerSentEvents() if streamed else WholeBody()

    def report_error(self, failure: ServerError) -> None:
        """The server says that it failed."""
        code, message = failure
        self.message.add_fault(code, message, retryable=is_retryable_code(code))

    def join_pieces(self) -> None:  # noqa: B027  most APIs have nothing of the kind
        """The body has ended: join what came in pieces and is no part of a call or a text."""

    def end_stream(self) -> None:
        """The API's own last frame has come: nothing that follows counts."""
        self._ended_well = True

    # Inside

    def _take(self, data: bytes) -> None:
        if self._frames is None:
            self._head = (self._head + data).lstrip().removeprefix(_BYTE_ORDER_MARK)
            if _undecided(self._head):
                return
            data, self._head = self._head, b""
            self._frames = self._framing_of(data)
        frames = self._frames.feed(data)
        self.waiting_bytes = len(data) + (0 if frames else self.waiting_bytes)
        for event, payload in frames:
            self._frame(event, payload)

    def _rest(self) -> None:
        if self._frames is None:
            if not self._head:
                return
            self._frames = WholeBody()
            self._frames.feed(self._head)
        frames = self._frames.close()
        if isinstance(self._frames, WholeBody):
            self._whole(frames[0][1])
            return
        for event, payload in frames:
            self._frame(event, payload)

    def _framing_of(self, first: bytes) -> FrameParser:
        frames = self.framing(self._content_type, streamed=self._streamed)
        begin = first[:1]
        if first[:2] in (b"{\n", b"{\r"):
            return WholeBody()  # in many lines, for people to read
        if begin == b"<":
            return WholeBody()  # a page, whatever was promised
        if begin in (b"{", b"["):
            return WholeBody() if isinstance(frames, (ServerSentEvents, AwsEventStream)) else frames
        if first.startswith(_EVENT_BEGINS):
            return ServerSentEvents()
        if begin == b"\0" and isinstance(frames, WholeBody):
            return AwsEventStream()
        return frames

    def _frame(self, event: str, payload: bytes) -> None:
        if self._ended_well:
            return
        try:
            value = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if not event and _all_json(lines := payload.split(b"\n")):  # events that no empty line parts
                for line in lines:
                    self._frame("", line)
                return
            value = self._odd(payload.strip())
        if isinstance(value, dict):
            try:
                self.read_frame(event, value)
            except _ODD as error:
                self._shapeless(error)

    def _odd(self, text: bytes) -> object:
        """What a frame is that is not plainly JSON: nothing, the end, or what the kinder reader makes of it."""
        if text in _END_MARKS:
            self.end_stream()
            return None
        value = self._json(text) if text else None
        if value is _UNREADABLE:
            self.message.add_fault("bad_frame", f"A frame of the answer is no JSON: {self.redact(text.decode('utf-8', 'replace'))[:200]!r}")
        return value

    def _whole(self, body: bytes) -> None:
        value = self._json(body.strip())
        if value is _UNREADABLE:
            self._several(body)
        elif isinstance(value, list):  # a stream that was asked for as one list
            for item in value:
                self._guarded(lambda item=item: self.read_frame("", item))  # type: ignore[misc]
            self._ended_well = True
        elif isinstance(value, dict):
            self._ended_well = True
            self._guarded(lambda: self.read_body(value))

    def _several(self, body: bytes) -> None:
        """Take a body that is more than one value: one a line, or one after the other."""
        frames = JsonLines()
        lines = [*frames.feed(body), *frames.close()]
        if len(lines) > 1 and _json(lines[0][1].strip()) is not _UNREADABLE:
            for event, payload in lines:
                self._frame(event, payload)
            return
        self.message.leniently_decoded = True
        values, rest = _values(body.decode("utf-8", "replace"))
        for value in values:
            self._guarded(lambda value=value: self.read_frame("", value))  # type: ignore[misc]
        if rest.startswith("<"):
            self.message.add_fault(
                "bad_frame", f"The answer is a web page and no JSON: {self.redact(rest)[:120]!r}. Check the URL that was asked."
            )
        elif rest:
            self.message.add_fault("bad_frame", f"The answer is no JSON: {self.redact(rest)[:200]!r}")

    def _json(self, text: bytes) -> object:
        self.message.leniently_decoded = True
        return _json(text)

    def _guarded(self, read: Callable[[], None]) -> None:
        try:
            read()
        except _ODD as error:
            self._shapeless(error)

    def _shapeless(self, error: Exception) -> None:
        self.message.add_fault("bad_frame", f"A frame of the answer has a shape that {self.api} does not have ({error!r}).")

    def _broken(self, error: FramingError | MessageTooLarge) -> None:
        self._over = True
        self.message.add_fault(error.code, str(error))

    def _told(self) -> list[ModelEvent]:
        told, self.message.events = self.message.events, []
        return told


_UNREADABLE = object()


def _finite(text: str) -> object:
    """A number that JSON has; one that is too large stays the text it is, since it would be written on as null."""
    number = float(text)
    return number if isfinite(number) else text


_kinder = json.JSONDecoder(strict=False, parse_constant=str, parse_float=_finite)


def _undecided(begin: bytes) -> bool:
    """Whether the first bytes do not yet say what they are."""
    return begin in (b"", b"{") or any(mark.startswith(begin) and mark != begin for mark in (*_EVENT_BEGINS, _BYTE_ORDER_MARK))


def _all_json(lines: list[bytes]) -> bool:
    return len(lines) > 1 and all(line.strip() in _END_MARKS or _json(line) is not _UNREADABLE for line in lines)


def _json(text: bytes) -> object:
    """The JSON value that `text` is. What msgspec refuses, the standard library may read: bad UTF-8, a raw control character."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _kinder.decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return _UNREADABLE


def _values(text: str) -> tuple[list[object], str]:
    """The JSON values that `text` begins with, and what follows them."""
    values: list[object] = []
    at = _after_space(text, 0)
    try:
        while at < len(text):
            value, end = _kinder.raw_decode(text, at)
            values.append(value)
            at = _after_space(text, end)
    except (ValueError, RecursionError):
        pass
    return values, text[at:]


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
