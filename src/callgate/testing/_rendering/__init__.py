"""Write scripted turns in providers' formats, in pieces or as one body.

The reverse of the decoders, written independently, so that neither hides the other's mistakes. One module for each API; `script_items` has
what they share. Knows no sockets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from callgate.testing._rendering import anthropic_messages, ollama_chat, openai_chat, openai_responses
from callgate.testing.model_script import Fail, Item

__all__ = ["CONTENT_TYPES", "render_body", "render_refusal", "render_stream"]

CONTENT_TYPES: Mapping[str, str] = {
    "openai.chat": "text/event-stream",
    "openai.responses": "text/event-stream",
    "anthropic.messages": "text/event-stream",
    "ollama.chat": "application/x-ndjson",
}
"""The supported APIs, with the content types of their streams."""
_STREAMS: Mapping[str, Callable[[Iterable[Item], str, int], Iterator[bytes | Item]]] = {
    "openai.chat": openai_chat.write_stream,
    "openai.responses": openai_responses.write_stream,
    "anthropic.messages": anthropic_messages.write_stream,
    "ollama.chat": ollama_chat.write_stream,
}
_BODIES: Mapping[str, Callable[[list[Item], str, int], dict[str, object]]] = {
    "openai.chat": openai_chat.write_body,
    "openai.responses": openai_responses.write_body,
    "anthropic.messages": anthropic_messages.write_body,
    "ollama.chat": ollama_chat.write_body,
}


def render_stream(api: str, items: Iterable[Item], model: str, number: int) -> Iterator[bytes | Item]:
    """Yield the pieces of a streamed answer, one per write. Items that are not content are yielded unchanged.

    Args:
        number: The number of the answer, for its id.
    """
    yield from _STREAMS[api](items, model, number)


def render_body(api: str, items: Iterable[Item], model: str, number: int) -> bytes:
    """Return the answer as one body."""
    return json.dumps(_BODIES[api]([*items], model, number)).encode()


def render_refusal(api: str, fail: Fail) -> bytes:
    """Return an error as the body of an error response."""
    if api == "ollama.chat":
        return json.dumps({"error": fail.message}).encode()
    error = {"type": fail.code, "code": fail.code, "message": fail.message}
    return json.dumps({"type": "error", "error": error}).encode()
