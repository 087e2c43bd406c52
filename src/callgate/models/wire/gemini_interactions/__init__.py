"""Gemini's Interactions API: a conversation as a list of steps.

`decoder` reads steps, streamed or whole; `encoder` writes a conversation as steps.
"""

from __future__ import annotations

from callgate.models.wire.gemini_interactions.decoder import GeminiInteractionsDecoder
from callgate.models.wire.gemini_interactions.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="gemini.interactions",
    decoder=GeminiInteractionsDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
)
