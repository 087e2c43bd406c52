"""Gemini's Interactions: a conversation as a line of steps."""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.gemini_interactions.reader import GeminiInteractionsDecoder
from callgate.models.wire.gemini_interactions.writer import encode, result_item

__all__ = ["CODEC"]

CODEC = Codec(api="gemini.interactions", decoder=GeminiInteractionsDecoder, encode=encode, result_item=result_item)
