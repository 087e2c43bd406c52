"""Decode answers of Converse and ConverseStream.

A stream consists of blocks: started (optional for text), extended by deltas, stopped. Where a proxy has turned it into JSON lines or
server-sent events, an event is an object whose only key is its kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.model_events import FinishReason, Usage
from callgate.models.wire.aws_event_stream import EXCEPTION_PREFIX, AwsEventStream
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.finish_reasons import finish_reason
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count, parse_json_or_text
from callgate.models.wire.message_assembly import MessageAssembly
from callgate.models.wire.server_errors import error_from_body
from callgate.models.wire.stream_framing import FrameParser, WholeBody
from callgate.models.wire.streaming_call import OpenCall

__all__ = ["BedrockConverseDecoder", "report_service_error"]

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
_MISWRITTEN_CALL = frozenset({"malformed_model_output", "malformed_tool_use"})
"""The model wrote a call that the service could not parse; a repeated request may succeed. The other calls do not run either: it is unknown
what the message was to be."""
_RETRYABLE_PREFIXES = ("throttling", "internalserver", "serviceunavailable", "modeltimeout", "modelnotready", "modelstreamerror")
"""Names of errors that may be gone a moment later begin with one of these."""


class _ConverseBlock:
    """One content block while it is written."""

    __slots__ = (
        "call",
        "citations",
        "has_reasoning",
        "native",
        "pieces",
        "reasoning_fields",
        "results",
        "signature",
        "stopped_pieces",
        "texts",
    )

    def __init__(self, call: OpenCall | None = None, native: dict[str, object] | None = None) -> None:
        self.call = call
        self.native = native
        self.pieces: list[str] = []
        """The input of a native tool so far."""
        self.stopped_pieces = 0
        """Number of pieces at the time the block was stopped."""
        self.results: list[Mapping[str, object]] = []
        """The content of a native tool's result."""
        self.texts: list[str] = []
        """The visible text of the block so far."""
        self.citations: list[object] = []
        """The sources of the text."""
        self.has_reasoning = False
        self.signature: list[str] = []
        self.reasoning_fields: dict[str, object] = {}
        """The opaque fields of the reasoning part that the signature belongs to."""


class BedrockConverseDecoder(Decoder):
    """Decodes one answer of Converse or ConverseStream."""

    api = "bedrock.converse"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._blocks: dict[int, _ConverseBlock] = {}
        self._blocks_in_pieces: list[_ConverseBlock] = []
        """The blocks whose pieces are joined at the end."""
        self._last_index = 0

    def framing(self, content_type: str, *, streamed: bool) -> FrameParser:
        return AwsEventStream() if streamed or "eventstream" in content_type else WholeBody()

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        event, value = _unwrap_event(event, value)
        match event:
            case "contentBlockStart":
                self._start_block(self._block_index(value), as_object(value.get("start")))
            case "contentBlockDelta":
                self._read_delta(self._block_index(value), as_object(value.get("delta")))
            case "contentBlockStop":
                self._stop_block(self._block_index(value))
            case "messageStop":
                self._read_stop_reason(value.get("stopReason"))
            case "metadata":
                self._read_usage(value)
            case _ if event.startswith(EXCEPTION_PREFIX):
                report_service_error(self.message, event.removeprefix(EXCEPTION_PREFIX), value)
            case _:
                pass  # messageStart and unknown events

    def read_body(self, value: Mapping[str, object]) -> None:
        if "output" not in value:
            self.read_frame("", value)
            if self.message.reason is None:
                report_service_error(self.message, as_text(value.get("__type")).rpartition("#")[2], value)
            return
        content = as_objects(as_object(as_object(value["output"]).get("message")).get("content"))
        hit_limit = _FINISH_REASONS.get(as_text(value.get("stopReason"))) == "length"
        for block in content:
            self._read_block(block, cut=hit_limit and block is content[-1])
        self.message.seal_all_but_last()
        self._read_usage(value)
        self._read_stop_reason(value.get("stopReason"))

    def _block_index(self, value: Mapping[str, object]) -> int:
        index = value.get("contentBlockIndex")
        self._last_index = index if isinstance(index, int) else self._last_index
        return self._last_index

    def _start_block(self, index: int, start: Mapping[str, object]) -> None:
        block = self._blocks[index] = _ConverseBlock()
        tool, result = as_object(start.get("toolUse")), as_object(start.get("toolResult"))
        if tool and tool.get("type", "tool_use") == "tool_use":
            block.call = self.message.open_call(as_text(tool.get("toolUseId")), as_text(tool.get("name")))
            self.message.append_arguments(block.call, as_arguments(tool.get("input")))
        elif tool or result:
            block.native = {**tool, **result}
            block.results = list(as_objects(result.get("content")))
            self._add_native("toolUse" if tool else "toolResult", block.native)

    def _read_delta(self, index: int, delta: Mapping[str, object]) -> None:
        block = self._blocks.setdefault(index, _ConverseBlock())
        if text := as_text(delta.get("text")):
            self.message.append_text(text)
            block.texts.append(text)
        if "citation" in delta:
            block.citations.append(delta["citation"])
        if "toolUse" in delta:
            self._append_input(block, as_arguments(as_object(delta["toolUse"]).get("input")))
        if "toolResult" in delta and block.native is not None:
            block.results.extend(as_objects(delta["toolResult"]))
            block.native["content"] = block.results
        if "reasoningContent" in delta:
            self._append_reasoning(block, as_object(delta["reasoningContent"]))

    def _append_input(self, block: _ConverseBlock, text: str) -> None:
        if block.native is not None:
            if not block.pieces:
                self._blocks_in_pieces.append(block)
            block.pieces.append(text)
        elif block.call is not None:
            self.message.append_arguments(block.call, text)
        else:
            raise ValueError("arguments of a call that was not started")

    def _append_reasoning(self, block: _ConverseBlock, piece: Mapping[str, object]) -> None:
        signature = as_text(piece.get("signature"))
        opaque: dict[str, object] = {"signature": signature} if signature else {}
        if "redactedContent" in piece:
            opaque["redactedContent"] = piece["redactedContent"]
        reasoning_fields = self.message.append_reasoning(as_text(piece.get("text")), opaque=opaque, new_part=not block.has_reasoning)
        block.has_reasoning = True
        if signature:
            if not block.signature:
                self._blocks_in_pieces.append(block)
            block.signature.append(signature)
            block.reasoning_fields = reasoning_fields

    def _stop_block(self, index: int) -> None:
        block = self._blocks.get(index, _ConverseBlock())
        if block.call is not None:
            self.message.seal(block.call)
        if block.citations:
            self._add_citations({"content": [{"text": "".join(block.texts)}], "citations": block.citations})
            block.citations = []
        block.stopped_pieces = len(block.pieces)

    def join_pieces(self) -> None:
        for block in self._blocks_in_pieces:
            if block.native is not None and block.stopped_pieces:
                block.native["input"] = parse_json_or_text("".join(block.pieces[: block.stopped_pieces]))
            if block.signature:
                block.reasoning_fields["signature"] = "".join(block.signature)

    def _read_block(self, block: Mapping[str, object], *, cut: bool) -> None:
        """Read a whole block. `cut`: the limit ended the message in this block, and a JSON object does not show whether it is complete."""
        tool = as_object(block.get("toolUse"))
        if tool and tool.get("type", "tool_use") == "tool_use":
            call = self.message.open_call(as_text(tool.get("toolUseId")), as_text(tool.get("name")))
            call.cut = cut
            self.message.append_arguments(call, as_arguments(tool.get("input")))
        elif "text" in block:
            self.message.append_text(as_text(block["text"]))
        elif "citationsContent" in block:
            cited = as_object(block["citationsContent"])
            for part in as_objects(cited.get("content")):
                self.message.append_text(as_text(part.get("text")))
            self._add_citations(cited)
        elif "reasoningContent" in block:
            reasoning_fields = as_object(block["reasoningContent"])
            text = as_object(reasoning_fields.get("reasoningText"))
            opaque = {
                key: found for key, found in (*text.items(), *reasoning_fields.items()) if key in ("signature", "redactedContent") and found
            }
            self.message.append_reasoning(as_text(text.get("text")), opaque=opaque, new_part=True)
        else:
            for kind, item in block.items():
                self._add_native(kind, as_object(item))

    def _add_citations(self, cited: Mapping[str, object]) -> None:
        """Mark the text before this as the text of a block with its sources."""
        self.message.append_reasoning(opaque={"citationsContent": cited}, new_part=True)

    def _add_native(self, kind: str, item: Mapping[str, object]) -> None:
        self.message.add_native(as_text(item.get("name")) or kind, as_text(item.get("toolUseId")), {kind: item})

    def _read_usage(self, value: Mapping[str, object]) -> None:
        usage = as_object(value.get("usage"))
        if not usage:
            return
        cached = as_token_count(usage.get("cacheReadInputTokens"))
        uncached = as_token_count(usage.get("inputTokens")) + as_token_count(usage.get("cacheWriteInputTokens"))
        self.message.set_usage(
            Usage(input_tokens=uncached + cached, output_tokens=as_token_count(usage.get("outputTokens")), cached_tokens=cached),
        )

    def _read_stop_reason(self, provider_reason: object) -> None:
        if isinstance(provider_reason, str) and provider_reason:
            reason = finish_reason(provider_reason, _FINISH_REASONS)
            if provider_reason in _MISWRITTEN_CALL:
                self.message.add_fault(provider_reason, "The model wrote an answer that the service could not parse.", retryable=True)
            last = self._blocks.get(self._last_index)
            if reason == "length" and last is not None and last.call is not None:
                self.message.cut(last.call)  # as in a body, which a host may keep and hand in again
            self.message.set_finish_reason(reason, provider_reason)


def report_service_error(message: MessageAssembly, code: str, value: Mapping[str, object]) -> None:
    """Report an error of the service."""
    text = as_text(value.get("message") or value.get("Message") or value.get("originalMessage")) or code
    if not text:
        code, text = error_from_body(value, as_text(dict(value)))
    message.add_fault(code, text, retryable=code.lower().startswith(_RETRYABLE_PREFIXES))


def _unwrap_event(event: str, value: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return an event's kind and body.

    If the event has no name of its own, take both from the entry of `value` that holds the body.
    """
    if event and event != "message":
        return event, value
    for kind, body in value.items():
        if isinstance(body, dict) and kind.endswith("Exception"):
            return EXCEPTION_PREFIX + kind, body
        if isinstance(body, dict) and kind.startswith(("contentBlock", "message", "metadata")):
            return kind, body
    return event, value
