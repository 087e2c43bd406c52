"""Ollama's own chat API.

`decoder` reads JSON lines or one body; `encoder` writes a conversation as messages.
"""

from __future__ import annotations

from callgate.models.wire.ollama_chat.decoder import OllamaChatDecoder
from callgate.models.wire.ollama_chat.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="ollama.chat",
    decoder=OllamaChatDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
)
