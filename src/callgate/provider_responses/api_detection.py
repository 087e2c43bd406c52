"""Recognise a provider's API by the fields of a response or of a chunk, and find the provider's id of the message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from callgate.models.wire.bedrock_invoke.decoder import chunk_event
from callgate.models.wire.json_fields import as_object

__all__ = ["api_of_chunk", "api_of_response", "container_id", "message_id"]

_Value = Mapping[str, object]
_ANTHROPIC_EVENTS = frozenset(
    {"message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta", "content_block_stop", "ping"}
)
_COHERE_EVENTS = frozenset(
    {"message-start", "content-start", "content-delta", "content-end", "tool-plan-delta", "tool-call-start", "tool-call-delta"}
    | {"tool-call-end", "citation-start", "citation-end", "message-end"}
)
_CONVERSE_EVENTS = frozenset({"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"})
_GEMINI_FIELDS = frozenset({"candidates", "usageMetadata", "promptFeedback"})
_ID_FIELDS: Mapping[str, tuple[str, ...]] = {
    "gemini.generate": ("responseId",),
    "ollama.chat": ("created_at",),
    "cohere.chat": ("id", "response_id", "generation_id"),
}


def api_of_response(value: _Value) -> str | None:
    """Return the API that a whole response belongs to, or None."""
    message = value.get("message")
    if "choices" in value:
        return "openai.chat"
    if value.get("object") == "interaction" or "steps" in value:
        return "gemini.interactions"
    if value.get("object") == "response" or isinstance(value.get("output"), list):
        return "openai.responses"
    if value.get("type") == "message" and "content" in value:
        return "anthropic.messages"
    if isinstance(value.get("output"), dict):
        return "bedrock.converse"
    if is_gemini(value):
        return "gemini.generate"
    if "generation_id" in value:
        return "cohere.chat"
    if not isinstance(message, dict) or "index" in value:  # a choice of a chat completion has an index
        return None
    return "ollama.chat" if _is_ollama(value) else "cohere.chat" if "finish_reason" in value else None


def api_of_chunk(value: _Value) -> str | None:
    """Return the API that one chunk of a stream belongs to, or None."""
    kind = value.get("type")
    if "choices" in value:
        return "openai.chat"
    if "chunk" in value:
        return "bedrock.invoke"
    if not _CONVERSE_EVENTS.isdisjoint(value):
        return "bedrock.converse"
    if isinstance(kind, str):
        if kind.startswith("response."):
            return "openai.responses"
        if kind in _ANTHROPIC_EVENTS:
            return "anthropic.messages"
        if kind in _COHERE_EVENTS:
            return "cohere.chat"
    if is_gemini(value):
        return "gemini.generate"
    event_type = value.get("event_type")
    if isinstance(event_type, str):
        return "gemini.interactions" if "." in event_type or "interaction" in value else "cohere.chat"
    return "ollama.chat" if isinstance(value.get("message"), dict) and _is_ollama(value) else None


def _is_ollama(value: _Value) -> bool:
    return "done" in value or "created_at" in value


def is_gemini(value: _Value) -> bool:
    """Return whether a value has the fields of Gemini's API, which some services wrap in an object."""
    return not _GEMINI_FIELDS.isdisjoint(value) or "candidates" in as_object(value.get("response"))


def message_id(api: str, value: _Value) -> str:
    """Return the provider's id of the message that a response or a chunk belongs to; empty if it has none.

    Ollama's time is one only with a fraction of a second, as Ollama writes it: a server that leaves the time unset, or writes whole
    seconds, gives several messages the same one.
    """
    if api == "bedrock.converse":
        return _text(as_object(value.get("ResponseMetadata")).get("RequestId"))
    if api == "gemini.generate":
        value = as_object(value.get("response")) or value
    if api == "bedrock.invoke":
        with suppress(ValueError):  # the decoder reports a chunk without an event
            value = chunk_event(value) or value
    inner = next((found for key in ("message", "response", "interaction") if (found := as_object(value.get(key)))), {})
    for field in _ID_FIELDS.get(api, ("id",)):
        if text := _text(value.get(field)) or _text(inner.get(field)):
            return "" if api == "ollama.chat" and "." not in text else text
    return ""


def container_id(api: str, value: _Value) -> str:
    """Return the id of the container in which Anthropic has run code for a message; empty if a response or a chunk has none."""
    if api != "anthropic.messages":
        return ""
    places = (value, as_object(value.get("message")), as_object(value.get("delta")))
    return next((found for place in places if (found := _text(as_object(place.get("container")).get("id")))), "")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
