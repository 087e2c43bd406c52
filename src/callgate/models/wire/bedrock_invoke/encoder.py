"""Encode a conversation as an InvokeModel request in Anthropic's format: the model is in the path, a version in the body."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from callgate.models.wire.anthropic_messages import encoder as anthropic_messages
from callgate.models.wire.anthropic_messages.encoder import encode_result, encode_tools, messages_body
from callgate.models.wire.history_encoding import encode_body
from callgate.models.wire.request import HttpRequest, ModelRequest
from callgate.models.wire.tool_names import WireNames

__all__ = ["encode", "encode_history", "encode_result", "encode_tools"]

_VERSION = "bedrock-2023-05-31"


def encode(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> HttpRequest:
    """Return the request for `/model/{model}/invoke` or `/invoke-with-response-stream`."""
    body = messages_body(request, names, {"version_in_body": _VERSION, **quirks}, api="bedrock.invoke")
    body.pop("stream", None)
    verb = "invoke-with-response-stream" if request.stream else "invoke"
    return HttpRequest(path=f"/model/{quote(request.model, safe='')}/{verb}", body=encode_body(body, request.extra))


def encode_history(request: ModelRequest, names: WireNames, quirks: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the conversation as the request's `messages`."""
    return anthropic_messages.encode_history(request, names, quirks, api="bedrock.invoke")
