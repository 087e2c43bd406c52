"""A model whose calls are read from its text.

For models without native calls, everything is text: the prompt describes the tools, earlier calls and results are written as text, and the
answer is read for calls. For models with native calls that sometimes write calls as text, only the answer is read, and only if the message
has no native call. In both cases the loop sees an ordinary model. Tool results are never read for calls, even if the model writes one
itself: a call after `[TOOL RESULT` or inside `<tool_response>` is text, and so is a call that stands in an earlier result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from callgate._run_in_thread import in_thread
from callgate.agent.conversation_formats import fallback
from callgate.agent.repeated_results import ToolResultTexts
from callgate.agent.system_prompt import TEXT_CALL_GUIDANCE, text_call_prompt
from callgate.messages import AssistantMessage, Message, Native, Reasoning, SystemMessage
from callgate.models.dialects import FoundCall, ParsedPart, ReasoningPart, TextPart, TextReader
from callgate.models.model_events import COMPLETE_REASONS, CallOpened, Fault, Finished, ModelEvent, ReasoningDelta, TextDelta, Usage
from callgate.models.model_protocol import Model, StreamingContext
from callgate.models.wire.base_decoder import new_call_id
from callgate.models.wire.message_assembly import MessageAssembly
from callgate.models.wire.request import ModelRequest
from callgate.models.wire.server_errors import MessageTooLarge
from callgate.models.wire.tool_names import WireNames

__all__ = ["TextCalls"]

log = logging.getLogger("callgate")

_TO_THE_END = "\0"
_RESULTS = {"[tool result": _TO_THE_END, "<tool_response>": "</tool_response>"}
"""The beginning of a line that begins a tool result, in lower case, and the text that ends the result."""
_AFTER_RESULT = "-"
"""Replaces the beginning of a line after the end of a tool result in that line."""
_LINE_CHARS = 64
_LARGE_CHARS = 65_536
"""The length from which a possible call is read in a thread. Reading a megabyte takes up to a second."""
_GATHERED_CHARS = 32_768


class TextCalls:
    """Wraps `model`, and reads calls from its text.

    Args:
        model: The wrapped model.
        teach: Whether to describe the tools in the prompt and not send them; otherwise the prompt only says how to write a call as text.
        dialect: How this model's family writes calls; None: detected from the text.
    """

    native_tools = True

    def __init__(self, model: Model, *, teach: bool = True, dialect: str | None = None, new_id: Callable[[], str] = new_call_id) -> None:
        self._model = model
        self._teach = teach
        self._dialect = dialect
        self._new_id = new_id

    @property
    def provider(self) -> str:
        return self._model.provider

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest, context: StreamingContext) -> AsyncIterator[ModelEvent]:
        tools = {spec.name: spec.schema for spec in request.tools}
        asked = _as_text_request(request) if self._teach else _with_guidance(request)
        events = self._model.stream(asked, context)
        out = MessageAssembly("text", WireNames(), self._new_id, request.calls_per_message)
        reader = TextReader(tools, dialect=self._dialect, taught=self._dialect is None)
        reading = _MessageReader(reader, out, ToolResultTexts(request.messages), holds_calls=not self._teach)
        try:
            async for event in events:
                if not tools:
                    yield event
                    continue
                for due in reading.gather(event):
                    async for step in _steps(reading, due):
                        for told in step:
                            yield told
                    if reading.has_ended:
                        return
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()


async def _steps(reading: _MessageReader, event: ModelEvent) -> AsyncIterator[list[ModelEvent]]:
    """Yield the results of processing an event without blocking the event loop: steps that may take long are run in a thread."""
    steps = reading.read(event)
    while True:
        step = await in_thread(partial(next, steps, None)) if reading.is_large else next(steps, None)
        if step is None:
            return
        yield step
        if reading.is_busy:
            await asyncio.sleep(0)


class _MessageReader:
    """Reads one answer for calls."""

    def __init__(self, reader: TextReader, out: MessageAssembly, results: ToolResultTexts, *, holds_calls: bool) -> None:
        self._reader = reader
        self._out = out
        self._results = results
        self.is_busy = False
        """Whether a step ended although there is more to read. The event loop can run other tasks between steps."""
        self.has_ended = False
        """Whether this reader ended the message before the model ended it."""
        self._holds_calls = holds_calls
        self._held_calls: list[FoundCall] = []
        """Calls in the text. They are held until the message ends: if it has native calls, these are text."""
        self._has_native_calls = False
        self._has_text = False
        """Whether text was received before the end of the message."""
        self._line = ""
        """The part of the current visible line that is needed to detect tool results."""
        self._gathered: list[str] = []
        """Text of a large possible call that has not been read yet."""
        self._gathered_chars = 0
        self._is_after_quoted = False
        """Whether a call was just shown as text. The reader drops the white space after a call, so that a line break stands for it."""
        self._quoting = ""
        """The text that ends the tool result that the model is writing itself; empty outside of one."""

    @property
    def is_large(self) -> bool:
        """Whether a possible call is so large that a step can take long."""
        return self._reader.candidate_chars > _LARGE_CHARS

    def gather(self, event: ModelEvent) -> list[ModelEvent]:
        """Return the events to process now: gathered text and `event`, or none if `event` is gathered as well.

        Text of a large possible call is gathered, because a thread for each small piece would take longer than reading it.
        """
        if self._has_native_calls:
            return [event]
        if isinstance(event, TextDelta) and self.is_large and self._gathered_chars < _GATHERED_CHARS:
            self._gathered.append(event.text)
            self._gathered_chars += len(event.text)
            return []
        gathered, self._gathered, self._gathered_chars = "".join(self._gathered), [], 0
        if not gathered:
            return [event]
        return [TextDelta(gathered + event.text)] if isinstance(event, TextDelta) else [TextDelta(gathered), event]

    def read(self, event: ModelEvent) -> Iterator[list[ModelEvent]]:
        """Yield the results of processing an event, in steps of bounded work."""
        if self._has_native_calls:
            yield [event]
            return
        try:
            yield from self._read_event(event)
        except MessageTooLarge as error:
            self.has_ended = True
            self._out.add_fault(error.code, str(error))
            self._out.finish(complete=False)
            yield self._take_events()

    def _read_event(self, event: ModelEvent) -> Iterator[list[ModelEvent]]:
        match event:
            case TextDelta(text=text):
                self._has_text = True
                yield from self._read_in_steps(self._reader.feed_in_steps(text))
                return
            case ReasoningDelta(text=text):
                self._out.append_reasoning(text)
            case Usage():
                self._out.set_usage(event)
            case Fault(code=code, message=message, retryable=retryable):
                self._out.add_fault(code, message, retryable=retryable)
            case CallOpened():
                yield from self._turn_calls_into_text(event)
                return
            case Finished():
                yield from self._finish(event)
                return
        yield self._take_events()

    def _read_in_steps(self, read: Iterator[list[ParsedPart]]) -> Iterator[list[ModelEvent]]:
        for pieces in read:
            self._add_parts(pieces)
            self.is_busy = self._reader.is_busy
            yield self._take_events()
        self.is_busy = False

    def _turn_calls_into_text(self, event: CallOpened | Finished) -> Iterator[list[ModelEvent]]:
        """Turn the held calls into text, because the message has native calls."""
        self._has_native_calls = True
        yield from self._read_in_steps(self._reader.close_in_steps(cut=True))
        for found in self._held_calls:
            self._out.append_text(found.source)
        yield [*self._take_events(), event]

    def _finish(self, event: Finished) -> Iterator[list[ModelEvent]]:
        if any(True for _ in event.message.calls):
            yield from self._turn_calls_into_text(event)
            return
        if not self._has_text:
            yield from self._read_in_steps(self._reader.feed_in_steps(event.message.text))
        yield from self._read_in_steps(self._reader.close_in_steps(cut=event.reason not in COMPLETE_REASONS))
        for found in self._held_calls:
            self._add_call(found)
        self._out.model = event.model
        if event.reason != "error":
            reason = "tool_calls" if self._out.calls and event.reason == "stop" else event.reason
            self._out.set_finish_reason(reason, event.said, event.explanation)
        self._out.finish(complete=event.reason in COMPLETE_REASONS)
        events = self._take_events()
        end = events[-1]
        assert isinstance(end, Finished)
        message = _as_read(end.message, event.message)
        yield [*events[:-1], replace(end, message=message, usage=event.usage or end.usage, fault=event.fault)]

    def _add_parts(self, pieces: Sequence[ParsedPart]) -> None:
        for piece in pieces:
            if isinstance(piece, TextPart):
                text, self._is_after_quoted = f"\n{piece.text}" if self._is_after_quoted else piece.text, False
                self._track_results(text)
                self._out.append_text(text)
            elif isinstance(piece, ReasoningPart):
                if piece.reclassifies_text:
                    self._out.reclassify_text()
                self._out.append_reasoning(piece.text)
            elif self._quoting or self._repeats_result(piece):
                self._out.append_text(piece.source)
                self._is_after_quoted = True
            elif self._holds_calls:
                self._held_calls.append(piece)
            else:
                self._add_call(piece)

    def _repeats_result(self, found: FoundCall) -> bool:
        """Whether a call repeats an earlier result of a tool. The log says so, because the model's next step may depend on it."""
        repeats = self._results.contain(found)
        if repeats:
            log.warning("A call of %r in the model's text was not run: an earlier tool result contains it word for word", found.name)
        return repeats

    def _track_results(self, text: str) -> None:
        """Track where the model begins to write a tool result itself, and where that result ends."""
        for line in (self._line + text).split("\n"):
            self._line = self._needed_part(line.lower())

    def _needed_part(self, line: str) -> str:
        """Return the part of an incomplete line that is needed when more of it arrives."""
        if not self._quoting:
            begin = line.lstrip()
            opener = next((opener for opener in _RESULTS if begin.startswith(opener)), None)
            if opener is None:
                return begin[:_LINE_CHARS]
            self._quoting, line = _RESULTS[opener], begin[len(opener) :]
        if self._quoting not in line:
            return line[-_LINE_CHARS:]
        self._quoting = ""
        return _AFTER_RESULT

    def _add_call(self, found: FoundCall) -> None:
        call = self._out.open_call(found.id, found.name)
        call.reasoning, call.lifted = found.reasoning, found.lifted
        self._out.append_arguments(call, found.arguments)
        self._out.seal(call)

    def _take_events(self) -> list[ModelEvent]:
        told, self._out.events = self._out.events, []
        return told


def _as_read(read: AssistantMessage, written: AssistantMessage) -> AssistantMessage:
    """Return the message with the calls read from its text. Parts that the provider needs back are unchanged."""
    own = [part for part in written.parts if isinstance(part, Native) or (isinstance(part, Reasoning) and part.opaque)]
    if not own:
        return replace(read, api=written.api)
    if not read.calls and read.text == written.text:
        return written
    return AssistantMessage(parts=(*own, *(part for part in read.parts if not isinstance(part, Reasoning))), api=written.api)


def _as_text_request(request: ModelRequest) -> ModelRequest:
    """Return the request for a model that only writes text."""
    messages = _with_system_text(fallback(request.messages), text_call_prompt(request.tools) if request.tools else "")
    return replace(request, messages=messages, tools=(), tool_choice="auto")


def _with_guidance(request: ModelRequest) -> ModelRequest:
    """Return the request for a model that has native calls but may write calls as text."""
    return replace(request, messages=_with_system_text(list(request.messages), TEXT_CALL_GUIDANCE)) if request.tools else request


def _with_system_text(messages: list[Message], text: str) -> list[Message]:
    """Return the messages with `text` at the end of the system text."""
    first = messages[0] if messages else None
    if not text:
        return messages
    if isinstance(first, SystemMessage):
        return [SystemMessage(f"{first.text}\n\n{text}"), *messages[1:]]
    return [SystemMessage(text), *messages]
