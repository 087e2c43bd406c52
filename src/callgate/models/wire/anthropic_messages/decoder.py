"""Read an answer of the messages API, whole or streamed: content blocks, one after the other.

The provider closes every block, also the one that a limit cut, so a block's end alone proves nothing: a call is proved by its own JSON, by
the block that follows it, or by the message's good end. Must not know which host served the answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from callgate.models.events import COMPLETE_REASONS, FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.finish_reasons import finish_reason
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.server_errors import error_from_body, parse_error

__all__ = ["AnthropicDecoder", "anthropic_usage"]

_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "content_filter",
}
_CODES = ("type", "status", "code")
_decode = msgspec.json.Decoder().decode


class _ContentBlock:
    """One content block while it is written."""

    __slots__ = ("call", "given", "grown", "native", "pieces", "settled", "stopped")

    def __init__(self, given: object, *, call: OpenCall | None = None, native: dict[str, object] | None = None) -> None:
        self.call = call
        self.native = native
        self.given = given
        """The input that the block began with; pieces that follow are instead of it."""
        self.pieces: list[str] = []
        """The input of a native tool, as far as it is written."""
        self.stopped = 0
        """How many of them had come when the block was stopped."""
        self.grown: dict[str, list[str]] = {}
        """The fields of a native block whose texts came in pieces."""
        self.settled = False
        """The call got what the block began with; pieces may follow all the same, where blocks grow side by side."""


class AnthropicDecoder(Decoder):
    """One message."""

    api = "anthropic.messages"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._blocks: dict[object, _ContentBlock] = {}
        self._last: _ContentBlock | None = None
        self._native: list[_ContentBlock] = []
        self._usage: dict[str, object] = {}

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        kind = as_text(value.get("type")) or event
        if kind == "error" or value.get("error"):
            self.report_error(parse_error(value.get("error") or value, _CODES))
        elif kind == "message_start":
            self._message(as_object(value.get("message")))
        elif kind == "content_block_start":
            self._open(value.get("index"), as_object(value.get("content_block")))
        elif kind == "content_block_delta":
            self._delta(self._block(value.get("index")), as_object(value.get("delta")))
        elif kind == "content_block_stop":
            self._stop(self._block(value.get("index")))
        elif kind == "message_delta":
            self._count(value.get("usage"))
            self._reason(as_object(value.get("delta")).get("stop_reason"))
        elif kind == "message_stop":
            self._stopped()
        elif kind == "message":
            self._message(value)

    def read_body(self, value: Mapping[str, object]) -> None:
        if value.get("type") == "error" or value.get("error"):
            self.report_error(parse_error(value.get("error") or value, _CODES))
        elif "content" not in value:
            self.report_error(error_from_body(value, "The answer has no content."))
        else:
            self._message(value)
            self._settle(whole=True)

    def end_stream(self) -> None:
        self._stopped()
        super().end_stream()

    def _stopped(self) -> None:
        """The message is over. Some gateways let the next one of the same turn follow in the same body."""
        self._settle(whole=True)
        if self.message.reason is None:
            self.message.set_finish_reason("stop")

    def _message(self, message: Mapping[str, object]) -> None:
        """A whole message, or the begin of one; a begin has content too where it goes on with a turn that ran code."""
        self.message.model = as_text(message.get("model")) or self.message.model
        self._count(message.get("usage"))
        content = message.get("content")
        if isinstance(content, str):
            self.message.append_text(content)
        for index, block in enumerate(as_objects(content)):
            self._open(index, block)
            self._stop(self._last)
        self._reason(message.get("stop_reason"))

    def _open(self, index: object, block: Mapping[str, object]) -> None:
        self._settle(whole=True)
        kind, opened = as_text(block.get("type")), _ContentBlock(block.get("input"))
        if kind == "text":
            self.message.append_text(as_text(block.get("text")))
        elif kind == "thinking":
            signature = as_text(block.get("signature"))
            self.message.append_reasoning(
                as_text(block.get("thinking")), opaque={"signature": signature} if signature else None, fresh=True
            )
        elif kind == "redacted_thinking":
            self.message.append_reasoning(opaque={"redacted": block.get("data")}, fresh=True)
        elif kind == "tool_use":
            opened.call = self.message.open_call(as_text(block.get("id")), as_text(block.get("name")))
            opened.call.opaque |= _echoed(block)
        else:
            opened.native = dict(block)
            self._native.append(opened)
            self.message.add_native(kind, as_text(block.get("id") or block.get("tool_use_id")), opened.native)
        self._blocks[index] = self._last = opened

    def _block(self, index: object) -> _ContentBlock | None:
        return self._blocks.get(index, self._last)

    def _delta(self, block: _ContentBlock | None, delta: Mapping[str, object]) -> None:
        if "partial_json" in delta:
            self._piece(block, as_arguments(delta["partial_json"]))
        elif "text" in delta:
            self.message.append_text(as_text(delta["text"]))
        elif "thinking" in delta:
            self.message.append_reasoning(as_text(delta["thinking"]))
        elif "signature" in delta:
            self.message.append_reasoning(opaque={"signature": delta["signature"]})
        elif block and block.native is not None:
            _grow(block.native, block.grown, delta)

    def _piece(self, block: _ContentBlock | None, text: str) -> None:
        if block and block.call:
            if block.settled and text:
                block.settled = False
                self.message.set_arguments(block.call, "")
            self.message.append_arguments(block.call, text)
        elif block and block.native is not None:
            block.pieces.append(text)
        elif text.strip():
            self.message.add_fault("bad_frame", "Arguments came that belong to no call.")

    def _stop(self, block: _ContentBlock | None) -> None:
        if block and block.call and block.call.size:
            self.message.seal(block.call)
        elif block:
            block.stopped = len(block.pieces)

    def join_pieces(self) -> None:
        for block in self._native:
            assert block.native is not None
            if block.stopped:
                block.native["input"] = _input("".join(block.pieces[: block.stopped]), block.given)
            block.native.update({key: "".join(pieces) for key, pieces in block.grown.items()})

    def _settle(self, *, whole: bool) -> None:
        """Give the last call the input that it began with, if no other came: what comes after it says whether that is whole."""
        call = self._last.call if self._last else None
        if call is None or call.sealed or call.size:
            return
        assert self._last is not None
        call.cut = call.cut or not whole
        self._last.settled = True
        self.message.set_arguments(call, _text(self._last.given))
        self.message.seal(call)

    def _reason(self, said: object) -> None:
        if isinstance(said, str) and said:
            reason = finish_reason(said, _REASONS)
            self._settle(whole=reason in COMPLETE_REASONS)
            self.message.set_finish_reason(reason, said)

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}
            self.message.set_usage(anthropic_usage(self._usage))


def anthropic_usage(usage: Mapping[str, object]) -> Usage:
    """Token counts as messages write them: input that was cached, or put into the cache, is counted apart there."""
    cached = as_token_count(usage.get("cache_read_input_tokens"))
    written = as_token_count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=as_token_count(usage.get("input_tokens")) + cached + written,
        output_tokens=as_token_count(usage.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=as_token_count(as_object(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


def _echoed(block: Mapping[str, object]) -> dict[str, object]:
    """What the API wants back with a call: whose code made it, and which of its toolsets it is of."""
    caller, toolset = as_object(block.get("caller")), block.get("toolset_name")
    echoed: dict[str, object] = {"caller": caller} if caller.get("type", "direct") != "direct" else {}
    return echoed | {"toolset_name": toolset} if toolset else echoed


def _text(given: object) -> str:
    """The input that a block began with, as JSON text; nothing is an empty object."""
    text = as_arguments(given)
    return text if text.strip() else "{}"


def _input(text: str, given: object) -> object:
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return given


def _grow(item: dict[str, object], grown: dict[str, list[str]], delta: Mapping[str, object]) -> None:
    """Add a piece to a block of a kind that is not known here; what texts come to is in `grown`."""
    for key, value in delta.items():
        before = item.get(key)
        if key == "type":
            continue
        if isinstance(before, str) and isinstance(value, str):
            grown.setdefault(key, [before]).append(value)
        else:
            item[key] = value
            grown.pop(key, None)
