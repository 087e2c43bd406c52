"""Decode answers of InvokeModel that are only text: Llama's, Mistral's and Titan's own formats, and Claude's before the messages API.

Calls in such text are found by `callgate.models.dialects`.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.model_events import FinishReason, Usage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.json_fields import as_objects, as_text, as_token_count

__all__ = ["TEXT_ONLY_FIELDS", "TextOnlyDecoder"]

_TEXT_KEYS = ("generation", "outputText", "completion", "text")
_LIST_KEYS = ("outputs", "results")
TEXT_ONLY_FIELDS = frozenset({*_TEXT_KEYS[:3], *_LIST_KEYS})
"""Fields that identify such an answer."""

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "finish": "stop",
    "finished": "stop",
    "length": "length",
    "max_tokens": "length",
    "content_filtered": "content_filter",
}
_INPUT_COUNT_KEYS = ("prompt_token_count", "inputTextTokenCount")
_OUTPUT_COUNT_KEYS = ("generation_token_count", "tokenCount", "totalOutputTextTokenCount")


class TextOnlyDecoder(Decoder):
    """Decodes one answer of text, whole or one of its chunks."""

    api = "bedrock.invoke"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._counts: dict[str, int] = {}

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        for item in (value, *(item for key in _LIST_KEYS for item in as_objects(value.get(key)))):
            for key in _TEXT_KEYS:
                self.message.append_text(as_text(item.get(key)))
            self._read_usage(item)
            provider_reason = as_text(item.get("stop_reason") or item.get("completionReason"))
            if provider_reason:
                self.message.set_finish_reason(_FINISH_REASONS.get(provider_reason.lower(), "other"), provider_reason)

    def read_body(self, value: Mapping[str, object]) -> None:
        self.read_frame("", value)

    def _read_usage(self, item: Mapping[str, object]) -> None:
        for name, keys in (("input_tokens", _INPUT_COUNT_KEYS), ("output_tokens", _OUTPUT_COUNT_KEYS)):
            for key in keys:
                if count := as_token_count(item.get(key)):
                    self._counts[name] = count
                    self.message.set_usage(Usage(**self._counts))
