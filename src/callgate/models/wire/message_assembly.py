"""The message as it grows: parts in order, calls from their first letter to their end, and the events that tell of it.

Every API's decoder speaks to this and to nothing else. It decides when a call is sealed: by the end of its own JSON object, or when the
message ends well; a message that does not end well leaves the rest `cut`. Knows no provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from callgate._limits import Limits
from callgate.calls import Text
from callgate.messages import AssistantMessage, Native, Reasoning, ToolCall
from callgate.models.events import (
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
from callgate.models.wire.duplicate_calls import CallIndex
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.server_errors import MessageTooLarge
from callgate.models.wire.surrogate_pairs import SurrogateBuffer, join_text
from callgate.models.wire.tool_names import WireNames

__all__ = ["MessageAssembly"]

_PARTS = 250_000
"""The parts that one message may have: far above any real one, so that small parts cannot fill the memory."""
_NAME_CHARS = 4_096
"""How long a call's name may grow that comes in pieces."""


class MessageAssembly:
    """One message.

    Args:
        api: The provider API, for the history.
        names: Gives tools their own names back.
        new_id: Makes an id for a call that has none.
        calls_per_message: How many calls the message may have.
    """

    def __init__(self, api: str, names: WireNames, new_id: Callable[[], str], calls_per_message: int = Limits().calls_per_message) -> None:
        self.events: list[ModelEvent] = []
        self.calls: list[OpenCall] = []
        self.reason: FinishReason | None = None
        self.provider_reason = ""
        self.model = ""
        self.finished = False
        self._api = api
        self._names = names
        self._new_id = new_id
        self._calls_per_message = calls_per_message
        self._parts: list[_TextRun | OpenCall | Native] = []
        self._kinds: set[type[Text] | type[Reasoning]] = set()
        """Of the texts among the parts."""
        self._complete = CallIndex()
        self._open: dict[int, OpenCall] = {}
        """The calls that are neither sealed nor cut by a fault, by their positions."""
        self._faulted: dict[int, OpenCall] = {}
        """Those that a fault has cut."""
        self._followed: dict[int, OpenCall] = {}
        """Those that may be sealed once another call follows: complete without having proved it, or free text."""
        self._usage: Usage | None = None
        self._fault: Fault | None = None
        self.leniently_decoded = False
        """Whether some of it was read by a reader that lets half a character pass."""
        self._halves = SurrogateBuffer()
        self.server = ""
        """Whose answer it is, where that is known: some of what is echoed is for that server alone."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a message has come."""
        return not self._parts and self.reason is None and self._fault is None

    def has_part(self, kind: type) -> bool:
        """Whether anything of this kind has come."""
        return bool(self.calls) if kind is ToolCall else kind in self._kinds

    # What decoders tell

    def append_text(self, text: str) -> None:
        if text:
            last = self._parts[-1] if self._parts else None
            if type(last) is not _TextRun or last.kind is not Text:
                last = self._words(Text)
            last.pieces.append(text)
            if shown := self._halves.shown("text", text) if self.leniently_decoded else text:
                self.events.append(TextDelta(shown))

    def reclassify_text(self) -> None:
        """All text so far turns out to have been a thought: in the message it is one, whatever was shown meanwhile."""
        if Text in self._kinds:
            self._kinds = {Reasoning}
        for part in self._parts:
            if isinstance(part, _TextRun):
                part.kind = Reasoning

    def append_reasoning(self, text: str = "", *, opaque: Mapping[str, object] | None = None, fresh: bool = False) -> dict[str, object]:
        """Take a piece of reasoning; returns what is sent back with its part, which may still be filled.

        Args:
            text: The piece.
            opaque: The provider's own item, or more of it; sent back with the part.
            fresh: Whether a new item begins here.
        """
        words = self._words(Reasoning, fresh=fresh)
        if opaque:
            words.opaque.update(opaque)
        if text:
            words.pieces.append(text)
            if shown := self._halves.shown("reasoning", text) if self.leniently_decoded else text:
                self.events.append(ReasoningDelta(shown))
        return words.opaque

    def open_call(self, call_id: str, name: str, *, custom: bool = False) -> OpenCall:
        """Begin a call; an empty `call_id` is made up.

        Raises:
            MessageTooLarge: The message has as many calls as it may have.
        """
        self._tell_halves()
        if len(self.calls) >= self._calls_per_message:
            text = f"The answer has more than {self._calls_per_message} calls; nothing more of it is read. Raise Limits.calls_per_message."
            raise MessageTooLarge(text, "too_many_calls")
        call = OpenCall(len(self.calls), call_id or self._new_id(), name, custom=custom, made_id=not call_id)
        self._add(call)
        self.calls.append(call)
        self._open[call.position] = call
        if custom:
            self._followed[call.position] = call
        if call_id:
            self._complete.identified(call)
        self.events.append(CallOpened(call.position, call.id, self._names.original(name)))
        return call

    def has_call(self, call_id: str, name: str, arguments: str) -> bool:
        """Whether this very call has come before, whole and under its id: servers send some twice."""
        return self._complete.has(call_id, name, arguments)

    def call_by_id(self, call_id: str) -> OpenCall | None:
        """The first call to which the server gave this id."""
        return self._complete.with_id(call_id)

    def set_call_id(self, call: OpenCall, call_id: str) -> None:
        """Take the id of a call that began without one."""
        call.id, call.made_id = call_id, False
        self._complete.identified(call)
        if call.complete:
            self._complete.completed(call)

    def append_arguments(self, call: OpenCall, text: str) -> None:
        """Take the next piece of a call's arguments; seals it at its own end."""
        if not text:
            return
        if call.sealed and text.strip():
            self._reopen(call)
        if "{" in text and call.is_placeholder and text.lstrip().startswith("{"):
            call.reset()
        call.append(text)
        if not self.leniently_decoded:
            self.events.append(ArgumentsDelta(call.position, text))
        elif shown := self._halves.shown(call.position, text):
            self.events.append(ArgumentsDelta(call.position, shown))
        if "}" in text and call.complete:
            self._completed(call)

    def append_name(self, call: OpenCall, name: str) -> None:
        """Take a call's name, or more of it; it may come after the arguments, which are of no use before."""
        if call.name and len(call.name) + len(name) > _NAME_CHARS:
            raise MessageTooLarge(f"The name of a call is longer than {_NAME_CHARS} characters; nothing more of the answer is read.")
        call.name += name
        if call.complete:
            self._complete.completed(call)
            if not call.is_placeholder:
                self.seal(call)

    def set_arguments(self, call: OpenCall, text: str) -> None:
        """The provider says what the arguments are as a whole; pieces that came before were the same, or a preview of it."""
        if call.has_arguments(text):
            return
        if call.may_be_prefix_of(text) and text.startswith(before := call.arguments):
            self.append_arguments(call, text[len(before) :])
            return
        if call.sealed:
            self._reopen(call)
        call.replace(text)
        if call.complete:
            self._complete.completed(call)
            self._followed[call.position] = call

    def seal(self, call: OpenCall) -> None:
        """The provider says that the call is over. True only if what it wrote is whole: a cut message says the same."""
        if not call.sealed and not call.cut and (call.custom or call.complete):
            self._seal(call, "sealed")

    def seal_followed(self) -> None:
        """In an answer that came as one body, only its last call can be one that a limit cut."""
        last = self.calls[-1] if self.calls else None
        for _, call in sorted(self._followed.items()):
            if call is not last:
                self.seal(call)
                self._followed.pop(call.position, None)

    def add_native(self, kind: str, call_id: str, item: Mapping[str, object]) -> None:
        """Something that the provider did itself."""
        self._tell_halves()
        self._add(Native(kind=kind, id=call_id, item=item))

    def set_usage(self, usage: Usage) -> None:
        self._usage = usage
        self.events.append(usage)

    def add_fault(self, code: str, message: str, *, retryable: bool = False) -> None:
        """The provider failed, or cannot be understood; the message ends with `error`.

        Calls that are open may have lost a piece with it, and their brackets may match all the same: nothing seals them any more.
        """
        for call in self._open.values():
            call.cut = True
        self._faulted |= self._open
        self._open.clear()
        fault = Fault(code=code or "error", message=message, retryable=retryable)
        self._fault = self._fault or fault
        self.reason = "error"
        self.events.append(fault)

    def set_finish_reason(self, reason: FinishReason, said: str = "") -> None:
        """The provider said why the message ends. What is open becomes final now; usage may still follow.

        Args:
            reason: `stop` will do for a message with calls, too: it ends with them.
            said: The provider's own word.
        """
        if self.reason != "error":
            self.reason, self.provider_reason = self._with_calls(reason), said
        if self.reason in COMPLETE_REASONS:
            self._seal_rest("finished")

    def finish(self, *, well: bool) -> None:
        """The body has ended. Idempotent.

        Args:
            well: Whether the body ended as this API's bodies do; counts where no reason was given.
        """
        if self.finished:
            return
        self.finished = True
        if self.reason is None:
            self.reason = self._with_calls("stop") if well else "cut"
        self._tell_halves()
        self._seal_rest("finished" if self.reason in COMPLETE_REASONS else "cut")
        message = AssistantMessage(parts=tuple(self._made()), api=self._api)
        self.events.append(
            Finished(reason=self.reason, said=self.provider_reason, message=message, usage=self._usage, fault=self._fault, model=self.model)
        )

    # Inside

    def _add(self, part: _TextRun | OpenCall | Native) -> None:
        if len(self._parts) >= _PARTS:
            raise MessageTooLarge(f"The answer has more than {_PARTS} parts; nothing more of it is read.")
        self._parts.append(part)

    def _completed(self, call: OpenCall) -> None:
        """The arguments of a call are one whole object now; seal it where that proves them final."""
        self._complete.completed(call)
        if not call.sealed and call.name and not call.cut and call.proves_its_end():
            self._seal(call, "sealed")
        elif not call.sealed:
            self._followed[call.position] = call

    def _with_calls(self, reason: FinishReason) -> FinishReason:
        return "tool_calls" if reason == "stop" and self.calls else reason

    def _words(self, kind: type[Text] | type[Reasoning], *, fresh: bool = False) -> _TextRun:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _TextRun) or last.kind is not kind or fresh:
            self._tell_halves()
            last = _TextRun(kind)
            self._kinds.add(kind)
            self._add(last)
        return last

    def _tell_halves(self) -> None:
        """Tell of half a character that ends a part, as the message has it."""
        for kind in self._halves.left():
            if kind == "text":
                self.events.append(TextDelta("?"))
            elif kind == "reasoning":
                self.events.append(ReasoningDelta("?"))

    def _seal(self, call: OpenCall, closed: Literal["sealed", "finished", "cut"]) -> None:
        call.sealed = True
        for calls in (self._open, self._faulted, self._followed):
            calls.pop(call.position, None)
        self.events.append(CallSealed(call.position, self._called(call), closed))

    def _reopen(self, call: OpenCall) -> None:
        call.sealed, call.reopened = False, True
        self._open[call.position] = call
        if call.custom:
            self._followed[call.position] = call
        self.events.append(CallReopened(call.position))

    def _seal_rest(self, closed: Literal["finished", "cut"]) -> None:
        for _, call in sorted((self._open | self._faulted).items()):
            self._seal(call, "cut" if call.cut else closed)

    def _made(self) -> list[Text | Reasoning | ToolCall | Native]:
        return [self._called(part) if isinstance(part, OpenCall) else _part(part) for part in self._parts]

    def _called(self, call: OpenCall) -> ToolCall:
        """The call by the names that the tool and its parameters have."""
        name = self._names.original(call.name)
        return call.to_tool_call(name, call.arguments if call.custom else self._names.original_arguments(name, call.arguments))


class _TextRun:
    """A run of text or of reasoning."""

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
