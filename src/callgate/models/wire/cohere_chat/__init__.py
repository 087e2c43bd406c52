"""Cohere's chat, the second version both ways; answers of the first are read too."""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.cohere_chat.reader import CohereChatDecoder
from callgate.models.wire.cohere_chat.writer import encode, result_item

__all__ = ["CODEC"]

CODEC = Codec(api="cohere.chat", decoder=CohereChatDecoder, encode=encode, result_item=result_item, dashes=False)
