"""Cohere's chat, the second version both ways; answers of the first are read too."""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.cohere_chat.decoder import CohereChatDecoder
from callgate.models.wire.cohere_chat.encoder import encode, encode_result

__all__ = ["CODEC"]

CODEC = Codec(api="cohere.chat", decoder=CohereChatDecoder, encode=encode, result_item=encode_result, dashes=False)
