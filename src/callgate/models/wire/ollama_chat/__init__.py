"""Ollama's own chat API."""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.ollama_chat.decoder import OllamaChatDecoder
from callgate.models.wire.ollama_chat.encoder import encode, encode_result

__all__ = ["CODEC"]

CODEC = Codec(api="ollama.chat", decoder=OllamaChatDecoder, encode=encode, result_item=encode_result)
