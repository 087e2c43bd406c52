"""Read answers of InvokeModel that are nothing but text: Llama's, Mistral's and Titan's own forms, and Claude's before messages.

Calls that such a model writes into its text are for the dialects to find.
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.models.events import FinishReason, Usage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.json_fields import as_objects, as_text, as_token_count

__all__ = ["TEXT_ONLY_FIELDS", "TextOnlyDecoder"]

_TEXTS = ("generation", "outputText", "completion", "text")
_LISTS = ("outputs", "results")
TEXT_ONLY_FIELDS = frozenset({*_TEXTS[:3], *_LISTS})
"""Fields that tell such an answer."""

_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "finish": "stop",
    "finished": "stop",
    "length": "length",
    "max_tokens": "length",
    "content_filtered": "content_filter",
}
_INPUT = ("prompt_token_count", "inputTextTokenCount")
_OUTPUT = ("generation_token_count", "tokenCount", "totalOutputTextTokenCount")


class TextOnlyDecoder(Decoder):
    """One answer of text, whole or one of its chunks."""

    api = "bedrock.invoke"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._counts: dict[str, int] = {}

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        for item in (value, *(item for key in _LISTS for item in as_objects(value.get(key)))):
            for key in _TEXTS:
                self.message.append_text(as_text(item.get(key)))
            self._count(item)
            said = as_text(item.get("stop_reason") or item.get("completionReason"))
            if said:
                self.message.set_finish_reason(_REASONS.get(said.lower(), "other"), said)

    def read_body(self, value: Mapping[str, object]) -> None:
        self.read_frame("", value)

    def _count(self, item: Mapping[str, object]) -> None:
        for name, keys in (("input_tokens", _INPUT), ("output_tokens", _OUTPUT)):
            for key in keys:
                if count := as_token_count(item.get(key)):
                    self._counts[name] = count
                    self.message.set_usage(Usage(**self._counts))
