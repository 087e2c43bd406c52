"""OpenAI's chat completions, and everything else that speaks them.

`reader` bears what the many servers of this form do differently; what they want differently is data, in `writer`'s quirks.
"""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.openai_chat.decoder import OpenAIChatDecoder
from callgate.models.wire.openai_chat.encoder import encode, encode_result

__all__ = ["CODEC"]

CODEC = Codec(api="openai.chat", decoder=OpenAIChatDecoder, encode=encode, result_item=encode_result)
