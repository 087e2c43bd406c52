"""Assemble one message from what a decoder reads, and emit the events.

Every API's decoder reports to `MessageAssembly` and to nothing else. It keeps the parts in order and decides when a call is sealed: at the
end of its own JSON object, or when the message ends completely; the calls of an incomplete message are `cut`. Knows no provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from callgate._engine_limits import Limits
from callgate.calls import Text
from callgate.messages import AssistantMessage, Native, Reasoning, ToolCall
from callgate.models.model_events import (
    COMPLETE_REASONS,
    ArgumentsDelta,
    CallOpened,
    CallReopened,
    CallSealed,
    Fault,
    Finished,
    FinishReason,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from callgate.models.wire.call_index import CallIndex
from callgate.models.wire.server_errors import MessageTooLarge
from callgate.models.wire.streaming_call import OpenCall
from callgate.models.wire.surrogate_pairs import SurrogateBuffer, join_text
from callgate.models.wire.tool_names import WireNames

__all__ = ["MessageAssembly"]

_MAX_PARTS = 250_000
"""Maximum number of parts: far above any real message, so that small parts cannot fill the memory."""
_MAX_NAME_CHARS = 4_096
"""Maximum length of a call's name that arrives in pieces."""


class MessageAssembly:
    """One message while it arrives.

    Args:
        api: The provider API, noted in the message.
        names: Maps wire names back to the tools' own.
        new_id: Makes an id for a call that has none.
        calls_per_message: Maximum number of calls.
        server: The server that sends the answer, if known. Some provider fields are sent back only to the same server.
    """

    def __init__(
        self,
        api: str,
        names: WireNames,
        new_id: Callable[[], str],
        calls_per_message: int = Limits().calls_per_message,
        *,
        server: str = "",
    ) -> None:
        self.events: list[ModelEvent] = []
        self.calls: list[OpenCall] = []
        self.reason: FinishReason | None = None
        self.provider_reason = self.explanation = ""
        self.model = ""
        self.server = server
        self.finished = False
        self._api = api
        self._names = names
        self._new_id = new_id
        self._calls_per_message = calls_per_message
        self._parts: list[_TextRun | OpenCall | Native] = []
        self._text_kinds: set[type[Text] | type[Reasoning]] = set()
        """The kinds of text among the parts."""
        self._call_index = CallIndex()
        self._open: dict[int, OpenCall] = {}
        """The calls that are neither sealed nor cut by a fault, by position."""
        self._sealed_by_successor: dict[int, OpenCall] = {}
        """The calls that are sealed when another call follows: those that look complete but do not prove it, and
        free text.
        """
        self._usage: Usage | None = None
        self._fault: Fault | None = None
        self.leniently_decoded = False
        """Whether some of the answer was decoded leniently, so that texts may contain lone surrogates."""
        self._surrogates = SurrogateBuffer()

    @property
    def is_empty(self) -> bool:
        """Whether no part, no reason and no fault have arrived."""
        return not self._parts and self.reason is None and self._fault is None

    def has_part(self, kind: type) -> bool:
        """Whether a part of this type has arrived."""
        return bool(self.calls) if kind is ToolCall else kind in self._text_kinds

    def append_text(self, text: str, *, new_part: bool = False) -> None:
        """Append a piece of visible text.

        Args:
            text: The piece.
            new_part: Whether a new text of the provider begins here.
        """
        if text:
            last = self._parts[-1] if self._parts else None
            if type(last) is not _TextRun or last.kind is not Text or new_part:
                last = self._text_run(Text, new_part=new_part)
            last.pieces.append(text)
            if ready := self._surrogates.feed("text", text) if self.leniently_decoded else text:
                self.events.append(TextDelta(ready))

    def reclassify_text(self) -> None:
        """Turn all text so far into reasoning, because the provider reports afterwards that it was reasoning.

        Events that were already emitted are not changed.
        """
        if Text in self._text_kinds:
            self._text_kinds = {Reasoning}
        for part in self._parts:
            if isinstance(part, _TextRun):
                part.kind = Reasoning

    def append_reasoning(self, text: str = "", *, opaque: Mapping[str, object] | None = None, new_part: bool = False) -> dict[str, object]:
        """Append a piece of reasoning; return the part's `opaque` fields, which the caller may still fill.

        Args:
            text: The piece.
            opaque: The provider's own item, or more of it; sent back with the part.
            new_part: Whether a new item begins here.
        """
        run = self._text_run(Reasoning, new_part=new_part)
        if opaque:
            run.opaque.update(opaque)
        if text:
            run.pieces.append(text)
            if ready := self._surrogates.feed("reasoning", text) if self.leniently_decoded else text:
                self.events.append(ReasoningDelta(ready))
        return run.opaque

    def open_call(self, call_id: str, name: str, *, custom: bool = False) -> OpenCall:
        """Begin a call; an empty `call_id` is replaced by a new one.

        Raises:
            MessageTooLarge: The message has the maximum number of calls.
        """
        self._flush_surrogates()
        if len(self.calls) >= self._calls_per_message:
            text = f"The answer has more than {self._calls_per_message} calls; the rest is not read. Raise Limits.calls_per_message."
            raise MessageTooLarge(text, "too_many_calls")
        call = OpenCall(len(self.calls), call_id or self._new_id(), name, custom=custom, made_id=not call_id)
        self._add(call)
        self.calls.append(call)
        self._open[call.position] = call
        if custom:
            self._sealed_by_successor[call.position] = call
        if call_id:
            self._call_index.add_id(call)
        self.events.append(CallOpened(call.position, call.id, self._names.original(name)))
        return call

    def has_call(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether a complete call with this id, name and arguments arrived before. Some servers send calls twice."""
        return self._call_index.contains(call_id, name, arguments)

    def call_by_id(self, call_id: str) -> OpenCall | None:
        """Return the first call to which the server gave this id."""
        return self._call_index.by_id(call_id)

    def set_call_id(self, call: OpenCall, call_id: str) -> None:
        """Set the id of a call that began without one."""
        call.id, call.made_id = call_id, False
        self._call_index.add_id(call)
        if call.arguments.complete:
            self._call_index.add_complete(call)

    def append_arguments(self, call: OpenCall, text: str) -> None:
        """Append a piece of a call's arguments; seal the call at the end of its JSON object."""
        if not text:
            return
        if call.sealed and text.strip():
            self.reopen(call)
        if "{" in text and call.arguments.is_placeholder and text.lstrip().startswith("{"):
            call.discard_arguments()
        call.arguments.append(text)
        if not self.leniently_decoded:
            self.events.append(ArgumentsDelta(call.position, text))
        elif ready := self._surrogates.feed(call.position, text):
            self.events.append(ArgumentsDelta(call.position, ready))
        if "}" in text and call.arguments.complete:
            self._on_complete(call)

    def append_name(self, call: OpenCall, name: str) -> None:
        """Set a call's name, or append to it. It may arrive after the arguments."""
        if call.name and len(call.name) + len(name) > _MAX_NAME_CHARS:
            raise MessageTooLarge(f"The name of a call is longer than {_MAX_NAME_CHARS} characters; the rest of the answer is not read.")
        call.name += name
        if call.arguments.complete:
            self._call_index.add_complete(call)
            if not call.arguments.is_placeholder:
                self.seal(call)

    def set_arguments(self, call: OpenCall, text: str) -> None:
        """Set the arguments as a whole. Pieces that arrived before were the same text, or a preview."""
        if call.arguments.equals(text):
            return
        if call.arguments.may_begin(text) and text.startswith(before := call.arguments.text):
            self.append_arguments(call, text[len(before) :])
            return
        self.reopen(call)
        call.discard_arguments()
        call.arguments.append(text)
        if call.arguments.complete:
            self._call_index.add_complete(call)
            self._sealed_by_successor[call.position] = call

    def seal(self, call: OpenCall) -> None:
        """Seal a call that the provider closed, but only if its arguments are complete.

        Providers close truncated calls too.
        """
        if not call.sealed and not call.cut and (call.custom or call.arguments.complete):
            self._seal(call, "sealed")

    def reopen(self, call: OpenCall) -> None:
        """Withdraw that a call was sealed, because it changes."""
        if call.sealed:
            call.sealed, call.reopened = False, True
            self._open[call.position] = call
            if call.custom:
                self._sealed_by_successor[call.position] = call
            self.events.append(CallReopened(call.position))

    def cut(self, call: OpenCall) -> None:
        """Mark a call as incomplete, also if it was sealed: it ends with the message."""
        call.cut = True
        self.reopen(call)

    def seal_all_but_last(self) -> None:
        """Seal the complete calls of an answer in one body, except the last call, which a limit may have cut."""
        last = self.calls[-1] if self.calls else None
        for _, call in sorted(self._sealed_by_successor.items()):
            if call is not last:
                self.seal(call)
                self._sealed_by_successor.pop(call.position, None)

    def add_native(self, kind: str, call_id: str, item: Mapping[str, object]) -> None:
        """Add an item for an action that the provider performed itself, such as a web search."""
        self._flush_surrogates()
        self._add(Native(kind=kind, id=call_id, item=item))

    def set_usage(self, usage: Usage) -> None:
        """Report token counts; a later report replaces an earlier one."""
        self._usage = usage
        self.events.append(usage)

    def add_fault(self, code: str, message: str, *, retryable: bool = False) -> None:
        """Report that the provider failed, or sent data that cannot be read. The message ends with `error`.

        Open calls may have lost a piece although their brackets match, so they are never sealed.
        """
        for call in self._open.values():
            call.cut = True
        self._open.clear()
        fault = Fault(code=code or "error", message=message, retryable=retryable)
        self._fault = self._fault or fault
        self.reason = "error"
        self.events.append(fault)

    def set_finish_reason(self, reason: FinishReason, provider_reason: str = "", explanation: str = "") -> None:
        """Set the reason why the message ends. Seal open calls if it proves that they are complete.

        Usage may still follow.

        Args:
            reason: The reason. In a message with calls, `stop` becomes `tool_calls`.
            provider_reason: The reason as the provider wrote it.
            explanation: The provider's text about it.
        """
        if self.reason != "error":
            self.reason, self.provider_reason, self.explanation = self._reason_with_calls(reason), provider_reason, explanation
        if self.reason in COMPLETE_REASONS:
            self._seal_all([call for _, call in sorted(self._open.items())], "finished")

    def finish(self, *, complete: bool) -> None:
        """End the message, because the body has ended. Idempotent.

        Args:
            complete: Whether the body ended in the way in which this API's bodies end. Used only if the server sent no
                reason.
        """
        if self.finished:
            return
        self.finished = True
        if self.reason is None:
            self.reason = self._reason_with_calls("stop") if complete else "cut"
        self._flush_surrogates()
        self._seal_all([call for call in self.calls if not call.sealed], "finished" if self.reason in COMPLETE_REASONS else "cut")
        message = AssistantMessage(parts=tuple(self._message_parts()), api=self._api)
        self.events.append(
            Finished(
                reason=self.reason,
                said=self.provider_reason,
                explanation=self.explanation,
                message=message,
                usage=self._usage,
                fault=self._fault,
                model=self.model,
            )
        )

    def _add(self, part: _TextRun | OpenCall | Native) -> None:
        if len(self._parts) >= _MAX_PARTS:
            raise MessageTooLarge(f"The answer has more than {_MAX_PARTS} parts; the rest is not read.")
        self._parts.append(part)

    def _on_complete(self, call: OpenCall) -> None:
        """Record that a call's arguments are one whole object. Seal the call if that proves that they are final."""
        self._call_index.add_complete(call)
        if not call.sealed and call.name and not (call.cut or call.reopened) and call.arguments.proves_end:
            self._seal(call, "sealed")
        elif not call.sealed:
            self._sealed_by_successor[call.position] = call

    def _reason_with_calls(self, reason: FinishReason) -> FinishReason:
        return "tool_calls" if reason == "stop" and self.calls else reason

    def _text_run(self, kind: type[Text] | type[Reasoning], *, new_part: bool = False) -> _TextRun:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _TextRun) or last.kind is not kind or new_part:
            self._flush_surrogates()
            last = _TextRun(kind)
            self._text_kinds.add(kind)
            self._add(last)
        return last

    def _flush_surrogates(self) -> None:
        """Emit the replacement for a lone surrogate that ends a part."""
        for kind in self._surrogates.flush():
            if kind == "text":
                self.events.append(TextDelta("?"))
            elif kind == "reasoning":
                self.events.append(ReasoningDelta("?"))

    def _seal(self, call: OpenCall, closed: Literal["sealed", "finished", "cut"]) -> None:
        call.sealed = True
        self._open.pop(call.position, None)
        self._sealed_by_successor.pop(call.position, None)
        self.events.append(CallSealed(call.position, self._tool_call(call), closed))

    def _seal_all(self, calls: Iterable[OpenCall], closed: Literal["finished", "cut"]) -> None:
        for call in calls:
            self._seal(call, "cut" if call.cut else closed)

    def _message_parts(self) -> list[Text | Reasoning | ToolCall | Native]:
        return [self._tool_call(part) if isinstance(part, OpenCall) else _part(part) for part in self._parts]

    def _tool_call(self, call: OpenCall) -> ToolCall:
        """Return the call with the original names of its tool and parameters."""
        name = self._names.original(call.name)
        return call.to_tool_call(name, call.arguments.text if call.custom else self._names.original_arguments(name, call.arguments.text))


class _TextRun:
    """Consecutive pieces of text or of reasoning."""

    __slots__ = ("kind", "opaque", "pieces")

    def __init__(self, kind: type[Text] | type[Reasoning]) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.opaque: dict[str, object] = {}


def _part(part: _TextRun | Native) -> Text | Reasoning | Native:
    if isinstance(part, Native):
        return part
    text = join_text(part.pieces).encode("utf-8", "replace").decode()
    return Text(text=text) if part.kind is Text else Reasoning(text=text, opaque=part.opaque or None)
