"""Anthropic's messages, as Anthropic itself, Vertex and many gateways serve them.

`reader` takes content blocks, streamed or whole; `writer` puts a conversation into turns of user and assistant.
"""

from __future__ import annotations

from callgate.models.wire.anthropic_messages.decoder import AnthropicDecoder
from callgate.models.wire.anthropic_messages.encoder import encode, encode_result
from callgate.models.wire.codec import Codec

__all__ = ["CODEC"]

CODEC = Codec(api="anthropic.messages", decoder=AnthropicDecoder, encode=encode, result_item=encode_result)
