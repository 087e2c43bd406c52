"""Read Cohere's chat: the second version's messages and events, and what the first version answers.

Before it calls tools, a model says what it plans; that is reasoning. The first version gives calls as objects, without ids; its streams
preview a call in pieces and then send all calls whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.failures import failure_in, told
from callgate.models.wire.fields import arguments_of, count_of, items_of, object_of, text_of
from callgate.models.wire.frames import Frames, JsonLines
from callgate.models.wire.open_call import OpenCall, canonical_form
from callgate.models.wire.reasons import reason_of

__all__ = ["CohereChatDecoder"]

_REASONS: Mapping[str, FinishReason] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "TOOL_CALL": "tool_calls",
    "MAX_TOKENS": "length",
    "ERROR_LIMIT": "length",
    "ERROR_TOXIC": "content_filter",
    "ERROR": "error",
    "TIMEOUT": "error",
}


class CohereChatDecoder(Decoder):
    """One answer of Cohere."""

    api = "cohere.chat"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._by_index: dict[object, OpenCall] = {}

    def framing(self, content_type: str, *, streamed: bool) -> Frames:
        return JsonLines() if "stream+json" in content_type else super().framing(content_type, streamed=streamed)

    def read(self, event: str, value: Mapping[str, object]) -> None:
        message = object_of(object_of(value.get("delta")).get("message"))
        match value.get("type") or value.get("event_type") or event:
            case "content-start" | "content-delta":
                for part in items_of(message.get("content")):
                    self._content(part)
            case "tool-plan-delta":
                self._plan(message.get("tool_plan"))
            case "tool-call-start":
                for item in items_of(message.get("tool_calls")):
                    self._by_index[value.get("index")] = self._open(item)
            case "tool-call-delta":
                for item in items_of(message.get("tool_calls")):
                    self._piece(value.get("index"), item)
            case "tool-call-end":
                if call := self._call_at(value.get("index")):
                    self.message.seal(call)
            case "message-end":
                self._end(object_of(value.get("delta")))
            case "" if "message" in value:
                self.read_whole(value)
            case str(kind):
                self._first_version(kind, value)
            case _:
                pass

    def read_whole(self, value: Mapping[str, object]) -> None:
        message = value.get("message")
        if isinstance(message, dict):
            self._answer(message)
            self._end(value)
        elif "text" in value or "tool_calls" in value or "generations" in value:
            self._whole_of_the_first(value)
        elif "type" in value or "event_type" in value:
            self.read("", value)
        else:
            self.failed(failure_in(value, "The answer has no message."))

    # The second version

    def _answer(self, message: Mapping[str, object]) -> None:
        self._plan(message.get("tool_plan"))
        content = message.get("content")
        for part in items_of(content):
            self._content(part)
        if isinstance(content, str):
            self.message.text(content)
        for item in items_of(message.get("tool_calls")):
            self._open(item)
        self.message.seal_followed()

    def _content(self, part: Mapping[str, object]) -> None:
        if thought := text_of(part.get("thinking")):
            self.message.reasoning(thought, opaque={"kind": "thinking"})
        self.message.text(text_of(part.get("text")))

    def _plan(self, text: object) -> None:
        if isinstance(text, str) and text:
            self.message.reasoning(text, opaque={"kind": "tool_plan"})

    def _open(self, item: Mapping[str, object]) -> OpenCall:
        function = object_of(item.get("function")) or item
        call = self.message.open(text_of(item.get("id")), text_of(function.get("name")))
        self.message.arguments(call, arguments_of(function.get("arguments", function.get("parameters"))))
        return call

    def _piece(self, index: object, item: Mapping[str, object]) -> None:
        call = self._call_at(index)
        if call is None:
            raise ValueError("arguments of a call that was never started")
        self.message.arguments(call, arguments_of(object_of(item.get("function")).get("arguments")))

    def _call_at(self, index: object) -> OpenCall | None:
        """The call of this number; where there is no number, the last."""
        return self._by_index.get(index) or (self.message.calls[-1] if index is None and self.message.calls else None)

    def _end(self, end: Mapping[str, object]) -> None:
        usage = object_of(end.get("usage") or end.get("meta"))
        if usage:
            tokens = object_of(usage.get("tokens")) or object_of(usage.get("billed_units"))
            self.message.usage(
                Usage(
                    input_tokens=count_of(tokens.get("input_tokens")),
                    output_tokens=count_of(tokens.get("output_tokens")),
                    cached_tokens=count_of(usage.get("cached_tokens")),
                )
            )
        self._reason(text_of(end.get("finish_reason")), text_of(end.get("error")))

    def _reason(self, said: str, error: str = "") -> None:
        reason = reason_of(said.upper(), _REASONS) if said else None
        if error or reason == "error":
            self.message.fault(said.lower(), error or f"The answer ended with {said}.", retryable=said.upper() == "TIMEOUT")
        elif reason is not None:
            self.message.ends(reason, said)

    # The first version

    def _first_version(self, kind: str, value: Mapping[str, object]) -> None:
        match kind:
            case "text-generation":
                self.message.text(text_of(value.get("text")))
            case "tool-calls-chunk":
                self._preview(object_of(value.get("tool_call_delta")), text_of(value.get("text")))
            case "tool-calls-generation":
                self._settle(value)
            case "stream-end":
                response = object_of(value.get("response"))
                self._settle(response)
                self._end({**response, "finish_reason": value.get("finish_reason") or response.get("finish_reason")})
            case "error" | "stream-error":
                self.failed(told(value.get("error") or value, ("code",)))
            case _:
                pass  # searches, citations, and whatever is new

    def _preview(self, piece: Mapping[str, object], plan: str) -> None:
        self._plan(plan)
        if not piece:
            return
        call = self._by_index.get(piece.get("index"))
        if call is None or (piece.get("name") and call.size):
            call = self._by_index[piece.get("index")] = self.message.open("", text_of(piece.get("name")))
        self.message.arguments(call, arguments_of(piece.get("parameters")))

    def _settle(self, value: Mapping[str, object]) -> None:
        """Take the calls that came whole; those that were previewed are the same ones."""
        for index, item in enumerate(items_of(value.get("tool_calls"))):
            if index >= len(self.message.calls):
                self._open(item)
                continue
            call = self.message.calls[index]
            call.name = text_of(item.get("name")) or call.name
            self._agree(call, arguments_of(item.get("parameters")))

    def _agree(self, call: OpenCall, arguments: str) -> None:
        """The same arguments in other white space are left as they came."""
        if call.form != canonical_form(arguments):
            self.message.whole_arguments(call, arguments)
        self.message.seal(call)

    def _whole_of_the_first(self, value: Mapping[str, object]) -> None:
        calls = items_of(value.get("tool_calls"))
        text = text_of(value.get("text"))
        if calls:
            self._plan(text)
        else:
            self.message.text(text or "".join(text_of(item.get("text")) for item in items_of(value.get("generations"))))
        for item in calls:
            self._open(item)
        self.message.seal_followed()
        self._end({**value, "finish_reason": value.get("finish_reason") or "COMPLETE"})
