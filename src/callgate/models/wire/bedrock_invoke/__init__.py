"""Amazon Bedrock's InvokeModel, where the models of every maker keep their own format.

`decoder` reads the answers of all makers with the decoders of their own APIs, or with `text_only`; `encoder` writes requests in Anthropic's
format. For the models of other makers, `bedrock_converse` supports tools.
"""

from __future__ import annotations

from callgate.models.wire.bedrock_invoke.decoder import BedrockInvokeDecoder
from callgate.models.wire.bedrock_invoke.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="bedrock.invoke",
    decoder=BedrockInvokeDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
)
