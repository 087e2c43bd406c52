"""Amazon Bedrock's Converse and ConverseStream: one form for the models of all makers there."""

from __future__ import annotations

from callgate.models.wire.bedrock_converse.decoder import BedrockConverseDecoder
from callgate.models.wire.bedrock_converse.encoder import encode, encode_result
from callgate.models.wire.codec import Codec

__all__ = ["CODEC"]

CODEC = Codec(api="bedrock.converse", decoder=BedrockConverseDecoder, encode=encode, result_item=encode_result)
