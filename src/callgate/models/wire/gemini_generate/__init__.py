"""Gemini's generateContent, from Google AI and from Vertex.

`reader` takes candidates and their parts, `partial` puts streamed arguments together, `writer` makes contents, `schemas` reduces tool
schemas to what the API takes.
"""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.gemini_generate.decoder import GeminiDecoder
from callgate.models.wire.gemini_generate.encoder import encode, encode_result

__all__ = ["CODEC"]

CODEC = Codec(api="gemini.generate", decoder=GeminiDecoder, encode=encode, result_item=encode_result)
