"""Gemini's Interactions: a conversation as a line of steps."""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.gemini_interactions.decoder import GeminiInteractionsDecoder
from callgate.models.wire.gemini_interactions.encoder import encode, encode_result

__all__ = ["CODEC"]

CODEC = Codec(api="gemini.interactions", decoder=GeminiInteractionsDecoder, encode=encode, result_item=encode_result)
