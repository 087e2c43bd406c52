"""OpenAI's responses API, from OpenAI, Azure and the servers that speak it.

`decoder` reads events and whole responses, `output_items` finds the output item that an event means, `host_calls` finds the items that wait
for the host, and `encoder` writes a conversation as input items.
"""

from __future__ import annotations

from callgate.models.wire.openai_responses.decoder import OpenAIResponsesDecoder
from callgate.models.wire.openai_responses.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.openai_responses.host_calls import host_calls
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="openai.responses",
    decoder=OpenAIResponsesDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
    host_calls=host_calls,
)
