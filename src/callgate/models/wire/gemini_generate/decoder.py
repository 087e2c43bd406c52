"""Read an answer of generateContent, whole, as events or as one list: candidates with parts.

A call's arguments come as an object that the provider has read already, so a whole part is a whole call; where they stream in, the part
that no longer says `willContinue` ends it. Signatures hang on any part and are kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate._json import json_text
from callgate.models.events import COMPLETE_REASONS, FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.gemini_generate.partial_arguments import PartialArguments
from callgate.models.wire.json_fields import as_arguments, as_object, as_objects, as_text, as_token_count
from callgate.models.wire.open_call import OpenCall
from callgate.models.wire.server_errors import error_from_body, parse_error

__all__ = ["GeminiDecoder"]

_REASONS: Mapping[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "ESCALATION": "content_filter",
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
_CODES = ("status", "code")
_MISWRITTEN = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
"""The model wrote a call that the provider could not make one of; asked again, it may write a better one."""
_NONE = "FINISH_REASON_UNSPECIFIED"
_ABOUT_THE_PART = frozenset(
    {"thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution", "mediaProcessing", "speechMetadata"}
)


class _StreamedCall:
    """A call whose arguments still stream in."""

    __slots__ = ("arguments", "call", "given")

    def __init__(self, call: OpenCall) -> None:
        self.call = call
        self.given = ""
        self.arguments = PartialArguments()


class GeminiDecoder(Decoder):
    """One answer; of several candidates the first."""

    api = "gemini.generate"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._growing: _StreamedCall | None = None
        self._signed = False
        """The last part is nothing but the signature of a text."""

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        value = as_object(value.get("response")) or value
        if value.get("error"):
            self.report_error(parse_error(value["error"], _CODES))
            return
        self.message.model = as_text(value.get("modelVersion")) or self.message.model
        for candidate in as_objects(value.get("candidates")):
            if not candidate.get("index"):
                self._candidate(candidate)
        usage = value.get("usageMetadata")
        if isinstance(usage, dict):
            self.message.set_usage(_usage(usage))
        blocked = as_text(as_object(value.get("promptFeedback")).get("blockReason"))
        if blocked:
            self.message.set_finish_reason("content_filter", blocked)

    def read_body(self, value: Mapping[str, object]) -> None:
        self.read_frame("", value)
        inner = as_object(value.get("response")) or value
        if not inner.get("candidates") and self.message.reason is None:
            self.report_error(error_from_body(inner, "The answer has no candidates."))

    def _candidate(self, candidate: Mapping[str, object]) -> None:
        for part in as_objects(as_object(candidate.get("content")).get("parts")):
            self._part(part)
        said = as_text(candidate.get("finishReason"))
        if said and said != _NONE:
            self._reason(said, as_text(candidate.get("finishMessage")))

    def _part(self, part: Mapping[str, object]) -> None:
        signature = as_text(part.get("thoughtSignature"))
        opaque = {"thoughtSignature": signature} if signature else None
        function = part.get("functionCall")
        kind = next((key for key in part if key not in _ABOUT_THE_PART), "")
        if isinstance(function, dict):
            self.message.append_text(as_text(part.get("text")))
            self._function(function, opaque)
        elif part.get("thought") and kind in ("text", ""):
            self.message.append_reasoning(as_text(part.get("text")), opaque=opaque, fresh=self._signed)
        elif kind in ("text", ""):
            self.message.append_text(as_text(part.get("text")))
            if signature:
                self.message.append_reasoning(opaque={"textSignature": signature}, fresh=True)
        else:
            self.message.add_native(kind, as_text(as_object(part[kind]).get("id")), dict(part))
        self._signed = bool(signature) and kind in ("text", "") and not part.get("thought")

    # Calls

    def _function(self, function: Mapping[str, object], opaque: Mapping[str, object] | None) -> None:
        growing = self._growing_of(function)
        if growing is None:
            return
        growing.call.opaque |= opaque or {}
        growing.given = as_arguments(function["args"]) if function.get("args") not in (None, {}) else growing.given
        for item in as_objects(function.get("partialArgs")):
            growing.arguments.add(item)
        if not function.get("willContinue"):
            self._end_call()

    def _growing_of(self, function: Mapping[str, object]) -> _StreamedCall | None:
        """The call that a part goes on with or begins; None where the part says nothing."""
        name, call_id = as_text(function.get("name")), as_text(function.get("id"))
        if self._growing is not None and (not name or (call_id and call_id == self._growing.call.id)):
            return self._growing
        if not name and not function.get("args"):
            return None
        if not function.get("willContinue") and self.message.has_call(call_id, name, as_arguments(function.get("args") or {})):
            return None
        self._end_call()
        self._growing = _StreamedCall(self.message.open_call(call_id, name))
        self._growing.call.cut = True
        return self._growing

    def _end_call(self) -> None:
        """The provider says, or shows by going on, that the arguments are all there."""
        growing, self._growing = self._growing, None
        if growing is not None:
            growing.call.cut = self.message.reason == "error"
            self.message.set_arguments(growing.call, growing.given or json_text(growing.arguments.value()))
            self.message.seal(growing.call)

    # The end

    def _reason(self, said: str, explained: str) -> None:
        reason = _REASONS.get(said, "other")
        if reason in COMPLETE_REASONS:
            self._end_call()
        if said in _MISWRITTEN and not self.message.calls:
            self.message.add_fault(said, explained or "The model wrote a call that the provider could not read.", retryable=True)
        else:
            self.message.set_finish_reason("stop" if said == "UNEXPECTED_TOOL_CALL" and self.message.calls else reason, said)


def _usage(usage: Mapping[str, object]) -> Usage:
    """Token counts; what tools put into the prompt is input, and thoughts are counted apart from the rest of the output."""
    thoughts = as_token_count(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=as_token_count(usage.get("promptTokenCount")) + as_token_count(usage.get("toolUsePromptTokenCount")),
        output_tokens=as_token_count(usage.get("candidatesTokenCount")) + thoughts,
        cached_tokens=as_token_count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )
