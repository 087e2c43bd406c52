"""Gemini's generateContent, from Google AI and from Vertex.

`decoder` reads candidates and their parts, `partial_arguments` assembles streamed arguments, `encoder` writes contents, and `schema_subset`
reduces tool schemas to what the API accepts.
"""

from __future__ import annotations

from callgate.models.wire.gemini_generate.decoder import GeminiDecoder
from callgate.models.wire.gemini_generate.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="gemini.generate",
    decoder=GeminiDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
)
