"""OpenAI's chat completions, and every server that speaks them.

`decoder` tolerates the differences between the servers, with `call_matching` (which call a piece belongs to) and `provider_fields` (fields
that go back to the server); `encoder` writes requests, with the differences as quirks.
"""

from __future__ import annotations

from callgate.models.wire.openai_chat.decoder import OpenAIChatDecoder
from callgate.models.wire.openai_chat.encoder import encode, encode_history, encode_result, encode_tools
from callgate.models.wire.provider_apis import Codec

__all__ = ["CODEC"]

CODEC = Codec(
    api="openai.chat",
    decoder=OpenAIChatDecoder,
    encode=encode,
    encode_history=encode_history,
    encode_tools=encode_tools,
    encode_result=encode_result,
)
