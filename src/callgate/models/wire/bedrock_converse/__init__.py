"""Amazon Bedrock's Converse and ConverseStream: one format for the models of all makers.

`decoder` reads content blocks, streamed or whole; `encoder` writes a conversation as alternating turns.
"""

from __future__ import annotations

from callgate.models.wire.bedrock_converse.decoder import BedrockConverseDecoder
from callgate.models.wire.bedrock_converse.encoder import encode, encode_result
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(api="bedrock.converse", decoder=BedrockConverseDecoder, encode=encode, encode_result=encode_result)
