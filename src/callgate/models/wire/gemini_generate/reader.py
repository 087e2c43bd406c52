"""Read an answer of generateContent, whole, as events or as one list: candidates with parts.

A call's arguments come as an object that the provider has read already, so a whole part is a whole call; where they stream in, the part
that no longer says `willContinue` ends it. Signatures hang on any part and are kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate._json import json_text
from callgate.models.events import WELL, FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.failures import failure_in, told
from callgate.models.wire.fields import arguments_of, count_of, items_of, object_of, text_of
from callgate.models.wire.gemini_generate.partial import PartialArguments
from callgate.models.wire.open_call import OpenCall

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


class _Growing:
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
        self._growing: _Growing | None = None
        self._signed = False
        """The last part is nothing but the signature of a text."""

    def read(self, event: str, value: Mapping[str, object]) -> None:
        value = object_of(value.get("response")) or value
        if value.get("error"):
            self.failed(told(value["error"], _CODES))
            return
        self.message.model = text_of(value.get("modelVersion")) or self.message.model
        for candidate in items_of(value.get("candidates")):
            if not candidate.get("index"):
                self._candidate(candidate)
        usage = value.get("usageMetadata")
        if isinstance(usage, dict):
            self.message.usage(_usage(usage))
        blocked = text_of(object_of(value.get("promptFeedback")).get("blockReason"))
        if blocked:
            self.message.ends("content_filter", blocked)

    def read_whole(self, value: Mapping[str, object]) -> None:
        self.read("", value)
        inner = object_of(value.get("response")) or value
        if not inner.get("candidates") and self.message.reason is None:
            self.failed(failure_in(inner, "The answer has no candidates."))

    def _candidate(self, candidate: Mapping[str, object]) -> None:
        for part in items_of(object_of(candidate.get("content")).get("parts")):
            self._part(part)
        said = text_of(candidate.get("finishReason"))
        if said and said != _NONE:
            self._reason(said, text_of(candidate.get("finishMessage")))

    def _part(self, part: Mapping[str, object]) -> None:
        signature = text_of(part.get("thoughtSignature"))
        opaque = {"thoughtSignature": signature} if signature else None
        function = part.get("functionCall")
        kind = next((key for key in part if key not in _ABOUT_THE_PART), "")
        if isinstance(function, dict):
            self.message.text(text_of(part.get("text")))
            self._function(function, opaque)
        elif part.get("thought") and kind in ("text", ""):
            self.message.reasoning(text_of(part.get("text")), opaque=opaque, fresh=self._signed)
        elif kind in ("text", ""):
            self.message.text(text_of(part.get("text")))
            if signature:
                self.message.reasoning(opaque={"textSignature": signature}, fresh=True)
        else:
            self.message.native(kind, text_of(object_of(part[kind]).get("id")), dict(part))
        self._signed = bool(signature) and kind in ("text", "") and not part.get("thought")

    # Calls

    def _function(self, function: Mapping[str, object], opaque: Mapping[str, object] | None) -> None:
        growing = self._growing_of(function)
        if growing is None:
            return
        growing.call.opaque |= opaque or {}
        growing.given = arguments_of(function["args"]) if function.get("args") not in (None, {}) else growing.given
        for item in items_of(function.get("partialArgs")):
            growing.arguments.add(item)
        if not function.get("willContinue"):
            self._end_call()

    def _growing_of(self, function: Mapping[str, object]) -> _Growing | None:
        """The call that a part goes on with or begins; None where the part says nothing."""
        name, call_id = text_of(function.get("name")), text_of(function.get("id"))
        if self._growing is not None and (not name or (call_id and call_id == self._growing.call.id)):
            return self._growing
        if not name and not function.get("args"):
            return None
        if not function.get("willContinue") and self.message.has(call_id, name, arguments_of(function.get("args") or {})):
            return None
        self._end_call()
        self._growing = _Growing(self.message.open(call_id, name))
        self._growing.call.cut = True
        return self._growing

    def _end_call(self) -> None:
        """The provider says, or shows by going on, that the arguments are all there."""
        growing, self._growing = self._growing, None
        if growing is not None:
            growing.call.cut = self.message.reason == "error"
            self.message.whole_arguments(growing.call, growing.given or json_text(growing.arguments.value()))
            self.message.seal(growing.call)

    # The end

    def _reason(self, said: str, explained: str) -> None:
        reason = _REASONS.get(said, "other")
        if reason in WELL:
            self._end_call()
        if said in _MISWRITTEN and not self.message.calls:
            self.message.fault(said, explained or "The model wrote a call that the provider could not read.", retryable=True)
        else:
            self.message.ends("stop" if said == "UNEXPECTED_TOOL_CALL" and self.message.calls else reason, said)


def _usage(usage: Mapping[str, object]) -> Usage:
    """Token counts; what tools put into the prompt is input, and thoughts are counted apart from the rest of the output."""
    thoughts = count_of(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=count_of(usage.get("promptTokenCount")) + count_of(usage.get("toolUsePromptTokenCount")),
        output_tokens=count_of(usage.get("candidatesTokenCount")) + thoughts,
        cached_tokens=count_of(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )
