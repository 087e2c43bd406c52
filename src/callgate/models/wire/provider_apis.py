"""The table of provider APIs: a codec for each, with its decoder and its encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module

from msgspec import Struct

from callgate.errors import UsageError
from callgate.messages import AssistantMessage, ToolMessage
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.request import HttpRequest, ModelRequest, ToolSpec
from callgate.models.wire.tool_names import WireNames

__all__ = ["Codec", "codec", "known_apis"]


def _no_items(message: AssistantMessage) -> tuple[Mapping[str, object], ...]:
    return ()


class Codec(Struct, frozen=True, kw_only=True):
    """Reads and writes one provider API."""

    api: str
    decoder: Callable[..., Decoder]
    """The decoder class. Takes `content_type`, `streamed`, `names`, `new_id`, `calls_per_message`, `redact` and
    `server`, as `Decoder` does.
    """
    encode: Callable[[ModelRequest, WireNames, Mapping[str, object]], HttpRequest]
    """Encodes a request. Tool names are converted by the `WireNames`; the mapping contains the provider's quirks."""
    encode_history: Callable[[ModelRequest, WireNames, Mapping[str, object]], list[dict[str, object]]]
    """Encodes the conversation of a request as the field of the body that holds it."""
    encode_tools: Callable[[Sequence[ToolSpec], WireNames, Mapping[str, object]], list[dict[str, object]]]
    """Encodes tools as the field of the body that declares them."""
    encode_result: Callable[[ToolMessage, WireNames], dict[str, object]]
    """Encodes a tool's result as an item of the next request."""
    host_calls: Callable[[AssistantMessage], tuple[Mapping[str, object], ...]] = _no_items
    """Finds the items of a message that the host must answer itself, because the provider defines them and does not run them."""
    allow_dashes: bool = True
    """Whether tool names may contain `-`."""

    def wire_names(self, tools: Iterable[str]) -> WireNames:
        """Return a mapping of these tool names to the names that this API accepts."""
        return WireNames(tools, allow_dashes=self.allow_dashes)


_PACKAGES = {
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
    return tuple(_PACKAGES)


def codec(api: str) -> Codec:
    """Return the codec of `api`.

    Raises:
        UsageError: The API is unknown.
    """
    package = _PACKAGES.get(api)
    if package is None:
        raise UsageError(f"No provider API is called '{api[:80]}'. Known are: {', '.join(_PACKAGES)}.")
    found = import_module(f"callgate.models.wire.{package}").CODEC
    assert isinstance(found, Codec)
    return found
