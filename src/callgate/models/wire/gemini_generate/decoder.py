"""Decode an answer of generateContent, whole, as events or as one list: candidates with parts.

The provider sends arguments as a parsed object, so a whole part is a whole call; streamed arguments end with the part without
`willContinue`. Any part may have a signature, which is kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate._json import json_text
from callgate.models.model_events import COMPLETE_REASONS, FinishReason, Usage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.gemini_generate.partial_arguments import PartialArguments
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.server_errors import error_from_body, parse_error
from callgate.models.wire.streaming_call import OpenCall

__all__ = ["GeminiDecoder"]

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "ESCALATION": "content_filter",
    "PUP_LIMITED_DISABLED": "content_filter",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
}
_CODE_KEYS = ("status", "code")
_UNEXPECTED_CALL = "UNEXPECTED_TOOL_CALL"
"""The model called a tool that was not offered."""
_MISSING_SIGNATURE = "MISSING_THOUGHT_SIGNATURE"
_FAULTS: Mapping[str, str] = {
    "MALFORMED_FUNCTION_CALL": "The model wrote a call that the provider could not parse.",
    "MALFORMED_RESPONSE": "The model wrote an answer that the provider could not parse.",
    "TOO_MANY_TOOL_CALLS": "The model made too many calls of the provider's own tools in one request.",
    _UNEXPECTED_CALL: "The model called a tool that was not offered.",
    _MISSING_SIGNATURE: "The request lacks the signature of a thought or a call. Send the model's messages back as they were received.",
}
"""By finish reason that makes an answer useless: what has happened, if the provider does not say it. A repeated request may succeed, unless
it is the request that lacks something.
"""
_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
_PART_METADATA = frozenset(
    {"thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution", "mediaProcessing", "speechMetadata"}
)


class _StreamedCall:
    """A call whose arguments still arrive."""

    __slots__ = ("arguments", "call", "whole_arguments")

    def __init__(self, call: OpenCall) -> None:
        self.call = call
        self.whole_arguments = ""
        self.arguments = PartialArguments()


class GeminiDecoder(Decoder):
    """Decodes one answer; the first of several candidates."""

    api = "gemini.generate"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._streamed_call: _StreamedCall | None = None
        self._after_text_signature = False
        """Whether the last part is only the signature of a text."""

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        value = as_object(value.get("response")) or value
        if value.get("error"):
            self.report_error(parse_error(value["error"], _CODE_KEYS))
            return
        self.message.model = as_text(value.get("modelVersion")) or self.message.model
        for candidate in as_objects(value.get("candidates")):
            if not candidate.get("index"):
                self._read_candidate(candidate)
        usage = value.get("usageMetadata")
        if isinstance(usage, dict):
            self.message.set_usage(_parse_usage(usage))
        feedback = as_object(value.get("promptFeedback"))
        if blocked := as_text(feedback.get("blockReason")):
            self.message.set_finish_reason("content_filter", blocked, as_text(feedback.get("blockReasonMessage")))

    def read_body(self, value: Mapping[str, object]) -> None:
        self.read_frame("", value)
        inner = as_object(value.get("response")) or value
        if not inner.get("candidates") and self.message.reason is None:
            self.report_error(error_from_body(inner, "The answer has no candidates."))

    def _read_candidate(self, candidate: Mapping[str, object]) -> None:
        for part in as_objects(as_object(candidate.get("content")).get("parts")):
            self._read_part(part)
        provider_reason = as_text(candidate.get("finishReason"))
        if provider_reason and provider_reason != _UNSPECIFIED:
            self._read_finish_reason(provider_reason, as_text(candidate.get("finishMessage")))

    def _read_part(self, part: Mapping[str, object]) -> None:
        signature = as_text(part.get("thoughtSignature"))
        opaque = {"thoughtSignature": signature} if signature else None
        function = part.get("functionCall")
        kind = next((key for key in part if key not in _PART_METADATA), "")
        if isinstance(function, dict):
            self.message.append_text(as_text(part.get("text")))
            self._read_function_call(function, opaque)
        elif part.get("thought") and kind in ("text", ""):
            self.message.append_reasoning(as_text(part.get("text")), opaque=opaque, new_part=self._after_text_signature)
        elif kind in ("text", ""):
            self.message.append_text(as_text(part.get("text")))
            if signature:
                self.message.append_reasoning(opaque={"textSignature": signature}, new_part=True)
        else:
            self.message.add_native(kind, as_text(as_object(part[kind]).get("id")), dict(part))
        self._after_text_signature = bool(signature) and kind in ("text", "") and not part.get("thought")

    def _read_function_call(self, function: Mapping[str, object], opaque: Mapping[str, object] | None) -> None:
        streamed = self._streamed_call_for(function)
        if streamed is None:
            return
        streamed.call.opaque |= opaque or {}
        streamed.whole_arguments = as_arguments(function["args"]) if function.get("args") not in (None, {}) else streamed.whole_arguments
        for item in as_objects(function.get("partialArgs")):
            streamed.arguments.add(item)
        if not function.get("willContinue"):
            self._end_call(told=True)

    def _streamed_call_for(self, function: Mapping[str, object]) -> _StreamedCall | None:
        """Return the call that a part continues or begins; None if the part is empty."""
        name, call_id = as_text(function.get("name")), as_text(function.get("id"))
        if self._streamed_call is not None and (not name or (call_id and call_id == self._streamed_call.call.id)):
            return self._streamed_call
        if not name and not function.get("args"):
            return None
        if not function.get("willContinue") and self.message.has_call(call_id, name, as_arguments(function.get("args") or {})):
            return None
        self._end_call()
        self._streamed_call = _StreamedCall(self.message.open_call(call_id, name))
        self._streamed_call.call.cut = True
        return self._streamed_call

    def _end_call(self, *, told: bool = False) -> None:
        """End the streamed call.

        Args:
            told: Whether the provider reports that its arguments are complete. Else it sends something else, and a string that should
                continue may have lost its end.
        """
        streamed, self._streamed_call = self._streamed_call, None
        if streamed is not None:
            streamed.call.cut = self.message.reason == "error" or (not told and streamed.arguments.lacks_end_of_string)
            self.message.set_arguments(streamed.call, streamed.whole_arguments or json_text(streamed.arguments.value()))
            self.message.seal(streamed.call)

    def _read_finish_reason(self, provider_reason: str, explanation: str) -> None:
        reason = _FINISH_REASONS.get(provider_reason, "other")
        if reason in COMPLETE_REASONS:
            self._end_call()
        is_unexpected = provider_reason == _UNEXPECTED_CALL and bool(self.message.calls)
        if provider_reason in _FAULTS and not is_unexpected:
            retryable = provider_reason != _MISSING_SIGNATURE
            self.message.add_fault(provider_reason, explanation or _FAULTS[provider_reason], retryable=retryable)
        else:
            self.message.set_finish_reason("stop" if is_unexpected else reason, provider_reason, explanation)


def _parse_usage(usage: Mapping[str, object]) -> Usage:
    """Return token counts; tool output in the prompt counts as input, and reasoning is added to the output."""
    reasoning_tokens = as_token_count(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=as_token_count(usage.get("promptTokenCount")) + as_token_count(usage.get("toolUsePromptTokenCount")),
        output_tokens=as_token_count(usage.get("candidatesTokenCount")) + reasoning_tokens,
        cached_tokens=as_token_count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=reasoning_tokens,
    )
