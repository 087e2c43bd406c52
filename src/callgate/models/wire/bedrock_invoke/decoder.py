"""Read what InvokeModel answers: the maker's own form, told by its fields; streamed, each of its events stands in a `chunk`, in base64.

The first frame that tells the maker decides. Anthropic's, Cohere's, chat completions and Amazon's own Nova are read by the readers of those
APIs, into this message; what is only text, by `plain`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from callgate.models.wire.anthropic_messages.decoder import AnthropicDecoder
from callgate.models.wire.aws_event_stream import EXCEPTION_PREFIX, AwsEventStream
from callgate.models.wire.bedrock_converse.decoder import BedrockConverseDecoder, report_service_error
from callgate.models.wire.bedrock_invoke.text_only import TEXT_ONLY_FIELDS, TextOnlyDecoder
from callgate.models.wire.cohere_chat.decoder import CohereChatDecoder
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.framing import FrameParser, WholeBody
from callgate.models.wire.json_fields import as_object, as_objects, as_text
from callgate.models.wire.openai_chat.decoder import OpenAIChatDecoder

__all__ = ["BedrockInvokeDecoder"]

_NOVA = frozenset({"output", "messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"})
_COHERE = frozenset({"event_type", "generation_id", "is_finished", "generations"})


class BedrockInvokeDecoder(Decoder):
    """One answer of InvokeModel or InvokeModelWithResponseStream."""

    api = "bedrock.invoke"

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._maker: Decoder | None = None

    def framing(self, content_type: str, *, streamed: bool) -> FrameParser:
        return AwsEventStream() if streamed or "eventstream" in content_type else WholeBody()

    def read_frame(self, event: str, value: Mapping[str, object]) -> None:
        if event.startswith(EXCEPTION_PREFIX):
            report_service_error(self.message, event.removeprefix(EXCEPTION_PREFIX), value)
            return
        chunk = as_object(value.get("chunk")) or value
        if "bytes" in chunk:
            event, value = "", _unpacked(chunk["bytes"])
        maker = self._reader(value)
        if maker is not None:
            maker.read_frame(event, _as_chat(value))
        if value.get("type") == "message_stop":
            self.end_stream()

    def read_body(self, value: Mapping[str, object]) -> None:
        maker = self._reader(value)
        if maker is not None:
            maker.read_body(_as_chat(value))
        else:
            report_service_error(self.message, as_text(value.get("__type")).rpartition("#")[2], value)

    def join_pieces(self) -> None:
        if self._maker is not None:
            self._maker.join_pieces()

    def _reader(self, value: Mapping[str, object]) -> Decoder | None:
        """Who reads this answer; None while nothing tells the maker."""
        if self._maker is None and (kind := _maker_of(value)) is not None:
            self._maker = kind(redact=self.redact)
            self._maker.message = self.message
        return self._maker


def _maker_of(value: Mapping[str, object]) -> type[Decoder] | None:
    if "choices" in value:
        return OpenAIChatDecoder
    if not _NOVA.isdisjoint(value):
        return BedrockConverseDecoder
    if not _COHERE.isdisjoint(value):
        return CohereChatDecoder
    if not TEXT_ONLY_FIELDS.isdisjoint(value):
        return TextOnlyDecoder
    return AnthropicDecoder if "type" in value or "content" in value else None


def _unpacked(data: object) -> dict[str, object]:
    """The event in a chunk; raises ValueError where there is none."""
    value = json.loads(base64.b64decode(as_text(data), validate=True))
    if not isinstance(value, dict):
        raise ValueError("a chunk without an event")
    return value


def _as_chat(value: Mapping[str, object]) -> Mapping[str, object]:
    """Chat completions whose choices say `stop_reason`, or `text` without a message, in the usual words."""
    if "choices" not in value:
        return value
    return {**value, "choices": [_as_choice(choice) for choice in as_objects(value["choices"])]}


def _as_choice(choice: Mapping[str, object]) -> Mapping[str, object]:
    said = {"finish_reason": choice.get("finish_reason") or choice.get("stop_reason")}
    return {"message": {"content": choice["text"]}, **choice, **said} if "text" in choice else {**choice, **said}
