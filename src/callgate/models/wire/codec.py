"""The table of provider APIs: for each, how to read it and how to write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

from msgspec import Struct

from callgate.errors import UsageError
from callgate.messages import ToolMessage
from callgate.models.wire.decoder import Decoder
from callgate.models.wire.request import HttpRequest, ModelRequest
from callgate.models.wire.tool_names import WireNames

__all__ = ["Codec", "codec", "known_apis"]


class Codec(Struct, frozen=True, kw_only=True):
    """One provider API, both ways."""

    api: str
    decoder: Callable[..., Decoder]
    """Takes `content_type`, `streamed`, `names`, `new_id`, `calls_per_message` and `redact`, as `Decoder` does."""
    encode: Callable[[ModelRequest, WireNames, Mapping[str, object]], HttpRequest]
    """Write a request. Tool names go through the `WireNames`; the mapping holds the provider's quirks."""
    result_item: Callable[[ToolMessage, WireNames], dict[str, object]]
    """The item of the next request that carries a tool's result."""
    dashes: bool = True
    """Whether the names of tools may have them."""

    def names(self, tools: Iterable[str]) -> WireNames:
        """The names of these tools, as this API takes them."""
        return WireNames(tools, dashes=self.dashes)


_ROOMS = {
    "openai.chat": "openai_chat",
    "anthropic.messages": "anthropic_messages",
    "openai.responses": "openai_responses",
    "gemini.generate": "gemini_generate",
    "ollama.chat": "ollama_chat",
    "bedrock.converse": "bedrock_converse",
    "bedrock.invoke": "bedrock_invoke",
    "gemini.interactions": "gemini_interactions",
    "cohere.chat": "cohere_chat",
}


def known_apis() -> tuple[str, ...]:
    return tuple(_ROOMS)


def codec(api: str) -> Codec:
    """The codec of `api`.

    Raises:
        UsageError: There is none of this name.
    """
    room = _ROOMS.get(api)
    if room is None:
        raise UsageError(f"No provider API is called '{api[:80]}'. Known are: {', '.join(_ROOMS)}.")
    found = import_module(f"callgate.models.wire.{room}").CODEC
    assert isinstance(found, Codec)
    return found
