"""Read what Bedrock answers to Converse and ConverseStream.

A stream is blocks: started (a text block may leave that out), grown by deltas, stopped. Where a proxy has made lines or server-sent
events of it, an event is an object with one key, its kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.aws_event_stream import EXCEPTION_PREFIX, AwsEventStream
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.finish_reasons import finish_reason
from callgate.models.wire.framing import FrameParser, WholeBody
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count, parse_json_or_text
from callgate.models.wire.message_assembly import MessageAssembly
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.server_errors import error_from_body

__all__ = ["BedrockConverseDecoder", "report_service_error"]

_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_MISWRITTEN = frozenset({"malformed_model_output", "malformed_tool_use"})
"""The model wrote what the service could not make a call of; asked again, it may write a better one."""
_PASSING = ("throttling", "internalserver", "serviceunavailable", "modeltimeout", "modelnotready", "modelstreamerror")
"""How the names of failures begin after which the same request may succeed."""


class _ConverseBlock:
    """One content block while it is written."""

    __slots__ = ("call", "native", "pieces", "reasoned", "results", "signature", "stopped", "thought")

    def __init__(self, call: OpenCall | None = None, native: dict[str, object] | None = None) -> None:
        self.call = call
        self.native = native
        self.pieces: list[str] = []
        """The input of a native tool, as far as it is written."""
        self.stopped = 0
        """How many of them had come when the block was stopped."""
        self.results: list[Mapping[str, object]] = []
        """The content of a native tool's result."""
        self.reasoned = False
        self.signature: list[str] = []
        self.thought: dict[str, object] = {}
        """What goes back with the part that the signature belongs to."""


class BedrockConverseDecoder(Decoder):
    """One answer of Converse or ConverseStream."""

    api = "bedrock.converse"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._blocks: dict[int, _ConverseBlock] = {}
        self._in_pieces: list[_ConverseBlock] = []
        """The blocks of which something is put together at the end."""
        self._last = 0

    def framing(self, content_type: str, *, streamed: bool) -> FrameParser:
        return AwsEventStream() if streamed or "eventstream" in content_type else WholeBody()

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        event, value = _unwrapped(event, value)
        match event:
            case "contentBlockStart":
                self._start(self._index(value), as_object(value.get("start")))
            case "contentBlockDelta":
                self._delta(self._index(value), as_object(value.get("delta")))
            case "contentBlockStop":
                self._stop(self._index(value))
            case "messageStop":
                self._reason(value.get("stopReason"))
            case "metadata":
                self._usage(value)
            case _ if event.startswith(EXCEPTION_PREFIX):
                report_service_error(self.message, event.removeprefix(EXCEPTION_PREFIX), value)
            case _:
                pass  # messageStart, and whatever is new

    def read_body(self, value: Mapping[str, object]) -> None:
        if "output" not in value:
            self.read_frame("", value)
            if self.message.reason is None:
                report_service_error(self.message, as_text(value.get("__type")).rpartition("#")[2], value)
            return
        content = as_objects(as_object(as_object(value["output"]).get("message")).get("content"))
        limited = _REASONS.get(as_text(value.get("stopReason"))) == "length"
        for block in content:
            self._whole_block(block, cut=limited and block is content[-1])
        self.message.seal_followed()
        self._usage(value)
        self._reason(value.get("stopReason"))

    # A stream

    def _index(self, value: Mapping[str, object]) -> int:
        index = value.get("contentBlockIndex")
        self._last = index if isinstance(index, int) else self._last
        return self._last

    def _start(self, index: int, start: Mapping[str, object]) -> None:
        block = self._blocks[index] = _ConverseBlock()
        tool, result = as_object(start.get("toolUse")), as_object(start.get("toolResult"))
        if tool and tool.get("type", "tool_use") == "tool_use":
            block.call = self.message.open_call(as_text(tool.get("toolUseId")), as_text(tool.get("name")))
            self.message.append_arguments(block.call, as_arguments(tool.get("input")))
        elif tool or result:
            block.native = {**tool, **result}
            block.results = list(as_objects(result.get("content")))
            self._native("toolUse" if tool else "toolResult", block.native)

    def _delta(self, index: int, delta: Mapping[str, object]) -> None:
        block = self._blocks.setdefault(index, _ConverseBlock())
        self.message.append_text(as_text(delta.get("text")))
        if "toolUse" in delta:
            self._input(block, as_arguments(as_object(delta["toolUse"]).get("input")))
        if "toolResult" in delta and block.native is not None:
            block.results.extend(as_objects(delta["toolResult"]))
            block.native["content"] = block.results
        if "reasoningContent" in delta:
            self._reasoning(block, as_object(delta["reasoningContent"]))

    def _input(self, block: _ConverseBlock, text: str) -> None:
        if block.native is not None:
            if not block.pieces:
                self._in_pieces.append(block)
            block.pieces.append(text)
        elif block.call is not None:
            self.message.append_arguments(block.call, text)
        else:
            raise ValueError("arguments of a call that was never started")

    def _reasoning(self, block: _ConverseBlock, piece: Mapping[str, object]) -> None:
        signature = as_text(piece.get("signature"))
        opaque: dict[str, object] = {"signature": signature} if signature else {}
        if "redactedContent" in piece:
            opaque["redactedContent"] = piece["redactedContent"]
        thought = self.message.append_reasoning(as_text(piece.get("text")), opaque=opaque, fresh=not block.reasoned)
        block.reasoned = True
        if signature:
            if not block.signature:
                self._in_pieces.append(block)
            block.signature.append(signature)
            block.thought = thought

    def _stop(self, index: int) -> None:
        block = self._blocks.get(index, _ConverseBlock())
        if block.call is not None:
            self.message.seal(block.call)
        block.stopped = len(block.pieces)

    def join_pieces(self) -> None:
        for block in self._in_pieces:
            if block.native is not None and block.stopped:
                block.native["input"] = parse_json_or_text("".join(block.pieces[: block.stopped]))
            if block.signature:
                block.thought["signature"] = "".join(block.signature)

    # One body

    def _whole_block(self, block: Mapping[str, object], *, cut: bool) -> None:
        """Take a block. An object says nothing of whether it is all that the model meant to write, if the limit `cut` its block."""
        tool = as_object(block.get("toolUse"))
        if tool and tool.get("type", "tool_use") == "tool_use":
            call = self.message.open_call(as_text(tool.get("toolUseId")), as_text(tool.get("name")))
            call.cut = cut
            self.message.append_arguments(call, as_arguments(tool.get("input")))
        elif "text" in block:
            self.message.append_text(as_text(block["text"]))
        elif "citationsContent" in block:
            for part in as_objects(as_object(block["citationsContent"]).get("content")):
                self.message.append_text(as_text(part.get("text")))
        elif "reasoningContent" in block:
            thought = as_object(block["reasoningContent"])
            text = as_object(thought.get("reasoningText"))
            opaque = {key: found for key, found in (*text.items(), *thought.items()) if key in ("signature", "redactedContent") and found}
            self.message.append_reasoning(as_text(text.get("text")), opaque=opaque, fresh=True)
        else:
            for kind, item in block.items():
                self._native(kind, as_object(item))

    # Both

    def _native(self, kind: str, item: Mapping[str, object]) -> None:
        self.message.add_native(as_text(item.get("name")) or kind, as_text(item.get("toolUseId")), {kind: item})

    def _usage(self, value: Mapping[str, object]) -> None:
        usage = as_object(value.get("usage"))
        if not usage:
            return
        cached = as_token_count(usage.get("cacheReadInputTokens"))
        fresh = as_token_count(usage.get("inputTokens")) + as_token_count(usage.get("cacheWriteInputTokens"))
        self.message.set_usage(
            Usage(input_tokens=fresh + cached, output_tokens=as_token_count(usage.get("outputTokens")), cached_tokens=cached),
        )

    def _reason(self, said: object) -> None:
        if isinstance(said, str) and said:
            reason = finish_reason(said, _REASONS)
            if said in _MISWRITTEN and not self.message.calls:
                self.message.add_fault(said, "The model wrote what the service could not read as an answer.", retryable=True)
            self.message.set_finish_reason(reason, said)


def report_service_error(message: MessageAssembly, code: str, value: Mapping[str, object]) -> None:
    """Note a failure that the service reported."""
    said = as_text(value.get("message") or value.get("Message") or value.get("originalMessage")) or code
    if not said:
        code, said = error_from_body(value, as_text(dict(value)))
    message.add_fault(code, said, retryable=code.lower().startswith(_PASSING))


def _unwrapped(event: str, value: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """An event's kind and body, also where the kind is the body's only key."""
    if event and event != "message":
        return event, value
    for kind, body in value.items():
        if isinstance(body, dict) and kind.endswith("Exception"):
            return EXCEPTION_PREFIX + kind, body
        if isinstance(body, dict) and kind.startswith(("contentBlock", "message", "metadata")):
            return kind, body
    return event, value
