"""Codecs of the provider APIs, without I/O: bytes in and events out, a conversation in and a request out.

    bytes -> framing -> decoder -> message_assembly -> events

In reading order: `request` (what a model is asked), `provider_apis` (the table of APIs), `base_decoder` (common to all APIs),
`stream_framing` and `aws_event_stream` (bytes into frames), `json_fields` (lenient access to JSON), `server_errors` and `finish_reasons`
(common error and end codes), `message_assembly` with `streaming_call`, `call_index`, `json_extent` and `surrogate_pairs` (frames into
one message and its events); then, for requests, `history_encoding`, `result_order`, `tool_names` and `tool_schemas`. Each API has a package
with `decoder` and `encoder`. Nothing here opens a connection, waits, or knows a tool.

The APIs are `openai_chat`, `openai_responses`, `anthropic_messages`, `gemini_generate`, `gemini_interactions`, `bedrock_converse`,
`bedrock_invoke`, `cohere_chat` and `ollama_chat`. `image_types` replaces images that one of them does not take,
with `image_dimensions`.
"""

from __future__ import annotations

from callgate.models.wire.provider_apis import Codec, codec, known_apis

__all__ = ["Codec", "codec", "known_apis"]
