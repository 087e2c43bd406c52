"""OpenAI's chat completions, and everything else that speaks them.

`reader` bears what the many servers of this form do differently; what they want differently is data, in `writer`'s quirks.
"""

from __future__ import annotations

from callgate.models.wire.codec import Codec
from callgate.models.wire.openai_chat.reader import OpenAIChatDecoder
from callgate.models.wire.openai_chat.writer import encode, result_item

__all__ = ["CODEC"]

CODEC = Codec(api="openai.chat", decoder=OpenAIChatDecoder, encode=encode, result_item=result_item)
