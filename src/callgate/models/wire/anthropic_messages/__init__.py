"""Anthropic's messages API, as Anthropic, Vertex and many gateways serve it.

`decoder` reads content blocks, streamed or whole; `encoder` writes a conversation as turns of user and assistant.
"""

from __future__ import annotations

from callgate.models.wire.anthropic_messages.decoder import AnthropicDecoder
from callgate.models.wire.anthropic_messages.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="anthropic.messages",
    decoder=AnthropicDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
)
