"""Cohere's chat API: version 2 in both directions, and answers of version 1.

`decoder` reads messages and events; `encoder` writes a conversation as messages.
"""

from __future__ import annotations

from callgate.models.wire.cohere_chat.decoder import CohereChatDecoder
from callgate.models.wire.cohere_chat.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="cohere.chat",
    decoder=CohereChatDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
    allow_dashes=False,
)
