"""Ollama's own chat API."""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.ollama_chat.reader import OllamaChatDecoder
from callgate.models.wire.ollama_chat.writer import encode, result_item

__all__ = ["CODEC"]

CODEC = Codec(api="ollama.chat", decoder=OllamaChatDecoder, encode=encode, result_item=result_item)
