"""Decode answers of InvokeModel: the maker's own format, recognised by its fields; a stream has each event in a `chunk` of base64.

The first frame that identifies the maker decides. Anthropic's, Cohere's, chat completions and Amazon's Nova are read by the decoders of
those APIs into this message; text by `text_only`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from callgate.models.wire.anthropic_messages.decoder import AnthropicDecoder
from callgate.models.wire.aws_event_stream import EXCEPTION_PREFIX, AwsEventStream
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.bedrock_converse.decoder import BedrockConverseDecoder, report_service_error
from callgate.models.wire.bedrock_invoke.text_only import TEXT_ONLY_FIELDS, TextOnlyDecoder
from callgate.models.wire.cohere_chat.decoder import CohereChatDecoder
from callgate.models.wire.json_fields import as_object, as_objects, as_text
from callgate.models.wire.openai_chat.decoder import OpenAIChatDecoder
from callgate.models.wire.stream_framing import FrameParser, WholeBody

__all__ = ["BedrockInvokeDecoder", "chunk_event"]

_NOVA_FIELDS = frozenset({"output", "messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"})
_COHERE_FIELDS = frozenset({"event_type", "generation_id", "is_finished", "generations"})


class BedrockInvokeDecoder(Decoder):
    """Decodes one answer of InvokeModel or InvokeModelWithResponseStream."""

    api = "bedrock.invoke"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._maker_decoder: Decoder | None = None

    def framing(self, content_type: str, *, streamed: bool) -> FrameParser:
        return AwsEventStream() if streamed or "eventstream" in content_type else WholeBody()

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        if event.startswith(EXCEPTION_PREFIX):
            report_service_error(self.message, event.removeprefix(EXCEPTION_PREFIX), value)
            return
        made = chunk_event(value)
        if made is not None:
            event, value = "", made
        maker_decoder = self._choose_decoder(value)
        if maker_decoder is not None:
            maker_decoder.read_frame(event, _as_chat_completion(value))
        if value.get("type") == "message_stop":
            self.end_stream()

    def read_body(self, value: Mapping[str, object]) -> None:
        maker_decoder = self._choose_decoder(value)
        if maker_decoder is not None:
            maker_decoder.read_body(_as_chat_completion(value))
        else:
            report_service_error(self.message, as_text(value.get("__type")).rpartition("#")[2], value)

    def join_pieces(self) -> None:
        if self._maker_decoder is not None:
            self._maker_decoder.join_pieces()

    def _choose_decoder(self, value: Mapping[str, object]) -> Decoder | None:
        """Return the decoder of the maker's format; None until a frame identifies the maker."""
        if self._maker_decoder is None and (kind := _decoder_class(value)) is not None:
            self._maker_decoder = kind(redact=self.redact, message=self.message)
        return self._maker_decoder


def _decoder_class(value: Mapping[str, object]) -> type[Decoder] | None:
    if "choices" in value:
        return OpenAIChatDecoder
    if not _NOVA_FIELDS.isdisjoint(value):
        return BedrockConverseDecoder
    if not _COHERE_FIELDS.isdisjoint(value):
        return CohereChatDecoder
    if not TEXT_ONLY_FIELDS.isdisjoint(value):
        return TextOnlyDecoder
    return AnthropicDecoder if "type" in value or "content" in value else None


def chunk_event(value: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the maker's event in a chunk of a stream; None if it is not in a chunk.

    Raises:
        ValueError: The chunk has no event.
    """
    chunk = as_object(value.get("chunk")) or value
    if "bytes" not in chunk:
        return None
    event = json.loads(base64.b64decode(as_text(chunk["bytes"]), validate=True))
    if not isinstance(event, dict):
        raise ValueError("a chunk without an event")
    return event


def _as_chat_completion(value: Mapping[str, object]) -> Mapping[str, object]:
    """Rename `stop_reason`, and `text` without a message, in chat completions to the usual fields."""
    if "choices" not in value:
        return value
    return {**value, "choices": [_as_choice(choice) for choice in as_objects(value["choices"])]}


def _as_choice(choice: Mapping[str, object]) -> Mapping[str, object]:
    reason = {"finish_reason": choice.get("finish_reason") or choice.get("stop_reason")}
    return {"message": {"content": choice["text"]}, **choice, **reason} if "text" in choice else {**choice, **reason}
