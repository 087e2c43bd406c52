"""Reads what a provider's SDK returns, and writes what the next request needs: for hosts that keep their own loop.

    response or chunks -> model events -> message and calls -> (the engine) -> items of the next request

In reading order: `provider_names` (which API a name means), `plain_values` (an SDK's objects as JSON data), `api_detection` (which API a
value belongs to), `message_shapes` (whether its message is spoilt), `tool_definitions` (tools as a request declares them, and their names
there), `text_calls` (a warning of calls that a model wrote as text), `response_reader` (a whole response), `stream_reader` (chunks), and
`history_items` (a message with its results). `refused_values` has the errors for all other values.

Imports no SDK, opens no connection, and runs no call. The decoding and encoding is that of `callgate.models.wire`.
"""

from __future__ import annotations

from callgate.provider_responses.history_items import HistoryItems, history_items
from callgate.provider_responses.provider_names import ProviderApi, provider_api
from callgate.provider_responses.response_reader import ProviderResponse, raw_call, read_response, same_call
from callgate.provider_responses.stream_reader import StreamReader, are_chunks, chunks_of, read_chunks
from callgate.provider_responses.tool_definitions import ToolDefinitions, tool_specs

__all__ = [
    "HistoryItems",
    "ProviderApi",
    "ProviderResponse",
    "StreamReader",
    "ToolDefinitions",
    "are_chunks",
    "chunks_of",
    "history_items",
    "provider_api",
    "raw_call",
    "read_chunks",
    "read_response",
    "same_call",
    "tool_specs",
]
