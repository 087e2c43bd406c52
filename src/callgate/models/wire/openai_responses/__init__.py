"""OpenAI's responses, from OpenAI, Azure and the servers that speak them.

`items` finds the output item that an event means, `reader` takes events and whole responses, `writer` puts a conversation into input items.
"""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.openai_responses.decoder import OpenAIResponsesDecoder
from callgate.models.wire.openai_responses.encoder import encode, encode_result

__all__ = ["CODEC"]

CODEC = Codec(api="openai.responses", decoder=OpenAIResponsesDecoder, encode=encode, result_item=encode_result)
