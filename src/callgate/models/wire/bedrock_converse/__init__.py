"""Amazon Bedrock's Converse and ConverseStream: one format for the models of all makers.

`decoder` reads content blocks, streamed or whole; `encoder` writes a conversation as alternating turns.
"""

from __future__ import annotations

from callgate.models.wire.bedrock_converse.decoder import BedrockConverseDecoder
from callgate.models.wire.bedrock_converse.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="bedrock.converse",
    decoder=BedrockConverseDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
)
