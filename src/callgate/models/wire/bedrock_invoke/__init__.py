"""Amazon Bedrock's InvokeModel, where every maker's models keep their own form.

Answers of all makers are read, by the readers of their own APIs. Requests are written in Anthropic's form; for the models of the others,
Converse is the API that takes tools.
"""

from __future__ import annotations

from callgate.models.wire.bedrock_invoke.decoder import BedrockInvokeDecoder
from callgate.models.wire.bedrock_invoke.encoder import encode, encode_result
from callgate.models.wire.codec import Codec

__all__ = ["CODEC"]

CODEC = Codec(api="bedrock.invoke", decoder=BedrockInvokeDecoder, encode=encode, result_item=encode_result)
