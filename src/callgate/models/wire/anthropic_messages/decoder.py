"""Decode an answer of the messages API, whole or streamed: consecutive content blocks.

The provider closes every block, also one that a limit cut, so the end of a block proves nothing: a call is complete by its own JSON, by the
block that follows it, or by the message's complete end. Does not know which host served the answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from callgate.models.model_events import COMPLETE_REASONS, FinishReason, Usage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.finish_reasons import finish_reason
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.server_errors import error_from_body, parse_error
from callgate.models.wire.streaming_call import OpenCall
from callgate.models.wire.surrogate_pairs import join_text

__all__ = ["AnthropicDecoder", "anthropic_usage"]

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "content_filter",
}
_CODE_KEYS = ("type", "status", "code")
_decode = msgspec.json.Decoder().decode


class _ContentBlock:
    """One content block while it is written."""

    __slots__ = (
        "call",
        "citations",
        "has_text",
        "initial_input",
        "input_applied",
        "native",
        "pieces",
        "stopped",
        "stopped_pieces",
        "text_pieces",
    )

    def __init__(self, initial_input: object, *, call: OpenCall | None = None, native: dict[str, object] | None = None) -> None:
        self.call = call
        self.native = native
        self.citations: list[object] = []
        """The sources of a text."""
        self.has_text = False
        self.initial_input = initial_input
        """The input that the block began with; pieces that follow replace it."""
        self.pieces: list[str] = []
        """The input of a native tool so far."""
        self.stopped = False
        self.stopped_pieces = 0
        """Number of pieces at the time the block was stopped."""
        self.text_pieces: dict[str, list[str]] = {}
        """The text fields of a native block that arrive in pieces."""
        self.input_applied = False
        """Whether the call has the initial input; pieces may still follow if the block was not stopped."""


class AnthropicDecoder(Decoder):
    """Decodes one message."""

    api = "anthropic.messages"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._blocks: dict[object, _ContentBlock] = {}
        self._last_block: _ContentBlock | None = None
        self._native_blocks: list[_ContentBlock] = []
        self._unstopped_blocks: list[_ContentBlock] = []
        """Blocks that were not stopped when the next one began: pieces of them may still arrive."""
        self._usage: dict[str, object] = {}

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        kind = as_text(value.get("type")) or event
        if kind == "error" or value.get("error"):
            self.report_error(parse_error(value.get("error") or value, _CODE_KEYS))
        elif kind == "message_start":
            self._read_message(as_object(value.get("message")))
        elif kind == "content_block_start":
            self._open_block(value.get("index"), as_object(value.get("content_block")))
        elif kind == "content_block_delta":
            self._read_delta(self._block_at(value.get("index")), as_object(value.get("delta")))
        elif kind == "content_block_stop":
            self._stop_block(self._block_at(value.get("index")))
        elif kind == "message_delta":
            self._read_usage(value.get("usage"))
            self._read_stop_reason(as_object(value.get("delta")))
        elif kind == "message_stop":
            self._end_message()
        elif kind == "message":
            self._read_message(value)

    def read_body(self, value: Mapping[str, object]) -> None:
        if value.get("type") == "error" or value.get("error"):
            self.report_error(parse_error(value.get("error") or value, _CODE_KEYS))
        elif "content" not in value:
            self.report_error(error_from_body(value, "The answer has no content."))
        else:
            self._read_message(value)
            cut = "stop_reason" in value and value["stop_reason"] is None
            if cut:  # what an SDK had read of a stream that broke off: a number may have lost digits
                self.message.set_finish_reason("cut")
            self._complete_blocks(complete=not cut)

    def end_stream(self) -> None:
        self._end_message()
        super().end_stream()

    def _end_message(self) -> None:
        """End the message. Some gateways send the next message of the same turn in the same body."""
        self._complete_blocks(complete=True)
        if self.message.reason is None:
            self.message.set_finish_reason("stop")

    def _read_message(self, message: Mapping[str, object]) -> None:
        """Read a whole message, or its start; a start has content if it continues a turn that ran code."""
        self.message.model = as_text(message.get("model")) or self.message.model
        self._read_usage(message.get("usage"))
        content = message.get("content")
        if isinstance(content, str):
            self.message.append_text(content)
        for index, block in enumerate(as_objects(content)):
            self._open_block(index, block)
            self._stop_block(self._last_block)
        self._read_stop_reason(message)

    def _open_block(self, index: object, block: Mapping[str, object]) -> None:
        self._leave_last_block()
        kind, opened = as_text(block.get("type")), _ContentBlock(block.get("input"))
        if kind == "text":
            self._append_text(opened, as_text(block.get("text")))
            opened.citations += as_objects(block.get("citations"))
        elif kind == "thinking":
            signature = as_text(block.get("signature"))
            self.message.append_reasoning(
                as_text(block.get("thinking")), opaque={"signature": signature} if signature else None, new_part=True
            )
        elif kind == "redacted_thinking":
            self.message.append_reasoning(opaque={"redacted": block.get("data")}, new_part=True)
        elif kind == "tool_use":
            opened.call = self.message.open_call(as_text(block.get("id")), _tool_name(block))
            opened.call.opaque |= _provider_fields(block)
        elif kind:
            opened.native = dict(block)
            self._native_blocks.append(opened)
            self.message.add_native(kind, as_text(block.get("id") or block.get("tool_use_id")), opened.native)
        self._blocks[index] = self._last_block = opened

    def _block_at(self, index: object) -> _ContentBlock | None:
        return self._blocks.get(index, self._last_block)

    def _read_delta(self, block: _ContentBlock | None, delta: Mapping[str, object]) -> None:
        if "partial_json" in delta:
            self._append_input(block, as_arguments(delta["partial_json"]))
        elif "text" in delta:
            self._append_text(block, as_text(delta["text"]))
        elif "thinking" in delta:
            self.message.append_reasoning(as_text(delta["thinking"]))
        elif "signature" in delta:
            self.message.append_reasoning(opaque={"signature": delta["signature"]})
        elif block and "citation" in delta:
            block.citations.append(delta["citation"])
        elif block and block.native is not None:
            _append_delta(block.native, block.text_pieces, delta)

    def _append_text(self, block: _ContentBlock | None, text: str) -> None:
        """Append a piece of a block's text. Each block stays a part of its own, because its citations are about its text alone."""
        self.message.append_text(text, new_part=block is not None and not block.has_text)
        if block is not None and text:
            block.has_text = True

    def _append_input(self, block: _ContentBlock | None, text: str) -> None:
        if block and block.call:
            if block.input_applied and text:
                block.input_applied = False
                self.message.set_arguments(block.call, "")
            self.message.append_arguments(block.call, text)
        elif block and block.native is not None:
            block.pieces.append(text)
        elif text.strip():
            self.message.add_fault("bad_frame", "Arguments arrived that belong to no call.")

    def _stop_block(self, block: _ContentBlock | None) -> None:
        if block:
            block.stopped = True
        if block and block.citations:
            self.message.append_reasoning(opaque={"citations": block.citations}, new_part=True)
            block.citations = []
        if block and block.call and block.call.arguments.size:
            self.message.seal(block.call)
        elif block:
            block.stopped_pieces = len(block.pieces)
            if block is not self._last_block:
                self._apply_initial_input(block, complete=True)

    def join_pieces(self) -> None:
        for block in self._native_blocks:
            assert block.native is not None
            if block.stopped_pieces:
                block.native["input"] = _parse_input(join_text(block.pieces[: block.stopped_pieces]), block.initial_input)
            block.native.update({key: join_text(pieces) for key, pieces in block.text_pieces.items()})

    def _leave_last_block(self) -> None:
        """Complete the last block because another one begins, unless it was not stopped: blocks may be interleaved."""
        if self._last_block and self._last_block.stopped:
            self._apply_initial_input(self._last_block, complete=True)
        elif self._last_block:
            self._unstopped_blocks.append(self._last_block)

    def _complete_blocks(self, *, complete: bool) -> None:
        blocks, self._unstopped_blocks = self._unstopped_blocks, []
        for block in blocks:
            self._apply_initial_input(block, complete=complete)
        if self._last_block:
            self._apply_initial_input(self._last_block, complete=complete)

    def _apply_initial_input(self, block: _ContentBlock, *, complete: bool) -> None:
        """Set the arguments of the block's call to its initial input, if no pieces arrived.

        Args:
            block: A block.
            complete: Whether what follows the block shows that the initial input is complete.
        """
        call = block.call
        if call is None or call.sealed or call.arguments.size:
            return
        call.cut = call.cut or not complete
        block.input_applied = True
        self.message.set_arguments(call, _input_text(block.initial_input))
        self.message.seal(call)

    def _read_stop_reason(self, stopped: Mapping[str, object]) -> None:
        provider_reason = stopped.get("stop_reason")
        if isinstance(provider_reason, str) and provider_reason:
            reason = finish_reason(provider_reason, _FINISH_REASONS)
            self._complete_blocks(complete=reason in COMPLETE_REASONS)
            if reason not in COMPLETE_REASONS and self._last_block is not None and self._last_block.call is not None:
                self.message.cut(self._last_block.call)  # as in a body, which a host may keep and hand in again
            explanation = as_text(as_object(stopped.get("stop_details")).get("explanation"))
            self.message.set_finish_reason(reason, provider_reason, explanation)

    def _read_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}
            self.message.set_usage(anthropic_usage(self._usage))


def anthropic_usage(usage: Mapping[str, object]) -> Usage:
    """Return token counts; the API counts cached input, and input written to the cache, separately."""
    cached = as_token_count(usage.get("cache_read_input_tokens"))
    written = as_token_count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=as_token_count(usage.get("input_tokens")) + cached + written,
        output_tokens=as_token_count(usage.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=as_token_count(as_object(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


def _tool_name(block: Mapping[str, object]) -> str:
    """Return the name of a call's tool. A member of a toolset has the toolset's name before its own, because a tool of the host may have
    the member's name.
    """
    toolset, name = as_text(block.get("toolset_name")), as_text(block.get("name"))
    return f"{toolset}.{name}" if toolset and name else name


def _provider_fields(block: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that the API requires back with a call: the code that made it, and its toolset with the member's own name."""
    caller, toolset = as_object(block.get("caller")), block.get("toolset_name")
    fields: dict[str, object] = {"caller": caller} if caller.get("type", "direct") != "direct" else {}
    return fields | {"toolset_name": toolset, "name": block.get("name")} if toolset else fields


def _input_text(initial_input: object) -> str:
    """Return the initial input as JSON text; nothing is an empty object."""
    text = as_arguments(initial_input)
    return text if text.strip() else "{}"


def _parse_input(text: str, initial_input: object) -> object:
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return initial_input


def _append_delta(item: dict[str, object], text_pieces: dict[str, list[str]], delta: Mapping[str, object]) -> None:
    """Append a delta to a block of an unknown kind; texts in pieces are collected in `text_pieces`."""
    for key, value in delta.items():
        before = item.get(key)
        if key == "type":
            continue
        if isinstance(before, str) and isinstance(value, str):
            text_pieces.setdefault(key, [before]).append(value)
        else:
            item[key] = value
            text_pieces.pop(key, None)
