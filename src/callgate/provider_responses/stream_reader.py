"""Read the chunks of a stream, one by one, into the events of a model's message."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from callgate._engine_limits import Limits
from callgate.models.model_events import CallReopened, CallSealed, Finished, ModelEvent, Usage
from callgate.models.wire import codec
from callgate.models.wire.base_decoder import Decoder
from callgate.models.wire.json_fields import as_objects
from callgate.models.wire.tool_names import WireNames
from callgate.provider_responses.api_detection import api_of_chunk, container_id, message_id
from callgate.provider_responses.message_shapes import check_chunk_shape
from callgate.provider_responses.plain_values import is_model_object, plain_value
from callgate.provider_responses.provider_names import provider_api, shown_api
from callgate.provider_responses.refused_values import (
    check_single_choice,
    refuse_automatic_calls,
    refuse_begun_stream,
    refuse_cohere_version_1,
    refuse_non_stream,
    several_choices_error,
    unknown_chunk_error,
)
from callgate.provider_responses.response_reader import (
    ProviderResponse,
    call_ids,
    finished_response,
    plain_gemini,
    safe_message_id,
    takes_bytes,
)
from callgate.provider_responses.tool_definitions import ToolDefinitions

__all__ = ["StreamReader", "are_chunks", "chunks_of", "read_chunks"]

_DERIVED_EVENTS = frozenset({"text", "thinking", "signature", "citation", "input_json", "compaction"})
"""The types of events that Anthropic's `messages.stream()` adds to the raw ones, and which repeat them."""
_KEPT_EVENTS = frozenset({CallSealed, CallReopened, Finished})
_WHOLE_MESSAGE_FIELDS = {"openai.responses": "response", "gemini.interactions": "interaction"}
"""By API: the field of a chunk that has the message as it is so far, with its id. That of the last chunk is the one that hosts keep."""

_STREAM_FIELDS = ("stream", "body")
"""The fields of boto3's dict that have the stream: of ConverseStream, and of InvokeModelWithResponseStream."""

log = logging.getLogger("callgate")


def chunks_of(stream: object) -> tuple[Any, str, bool]:
    """Return the chunks of a host's stream, the message's id if it is known before, and whether the stream is of boto3.

    boto3 returns its stream in a dict with the id of the request.

    Raises:
        UsageError: It is not a stream.
    """
    found_id, of_boto3 = "", False
    if isinstance(stream, Mapping):
        found_id, of_boto3 = safe_message_id(message_id("bedrock.converse", stream)), "ResponseMetadata" in stream
        stream = next((stream[key] for key in _STREAM_FIELDS if isinstance(stream.get(key), (AsyncIterable, Iterable))), stream)
    refuse_non_stream(stream)
    return stream, found_id, of_boto3 or "botocore" in type(stream).__module__


def are_chunks(response: object) -> bool:
    """Return whether a value is a list of a stream's chunks, or boto3's dict with such a list, and not a whole response."""
    if isinstance(response, Mapping):
        response = next((response[key] for key in _STREAM_FIELDS if key in response), None)
    return isinstance(response, (list, tuple)) and any(_is_chunk(item) for item in response)


def read_chunks(
    chunks: object,
    provider: str | None = None,
    *,
    tools: ToolDefinitions | None = None,
    message_id: str = "",
    calls_per_message: int = Limits().calls_per_message,
    reader: str = "read_chunks",
) -> ProviderResponse:
    """Read all chunks of a stream that has ended, as `read_response` does a whole response.

    Args:
        chunks: A list of them, or boto3's dict with such a list as its `stream`.

    Raises:
        UsageError: As `StreamReader` does.
    """
    given, found_id, of_boto3 = chunks_of(chunks)
    stream = StreamReader(
        provider,
        tools=tools,
        message_id=message_id or found_id,
        calls_per_message=calls_per_message,
        of_boto3=of_boto3,
        reader=reader,
    )
    for chunk in given:
        stream.feed(chunk)
    return stream.close()


class StreamReader:
    """Reads one stream. Feed it every chunk, then close it.

    Args:
        provider: The provider or API; see `provider_api`. None: it is recognised by the first chunk that shows it.
        tools: The tools that the request declared. None: their names were sent unchanged.
        message_id: The host's own id of the message, used in place of the provider's.
        calls_per_message: Maximum number of calls.
        of_boto3: Whether the stream is of boto3, which takes bytes where JSON has Base64.
        reader: The name of the function that the host called, for errors.
    """

    def __init__(
        self,
        provider: str | None = None,
        *,
        tools: ToolDefinitions | None = None,
        message_id: str = "",
        calls_per_message: int = Limits().calls_per_message,
        of_boto3: bool = False,
        reader: str = "engine.watch",
    ) -> None:
        self.message_id = message_id
        """The id of the message; empty until a chunk has one. A later chunk may replace it."""
        self._first_id = message_id
        self._has_own_id = bool(message_id)
        """Whether the host has given the id."""
        self._provider = provider_api(provider) if provider is not None else None
        self._tools = tools
        self._calls_per_message = calls_per_message
        self._of_boto3 = of_boto3
        self._reader = reader
        self._takes_bytes = False
        """Whether the chunks are of boto3, as far as they have shown."""
        self._decoder: Decoder | None = None
        self._names: WireNames | None = None
        self._container = ""
        self._choice: object = None
        """The index of the stream's choice or candidate."""
        self._events: list[ModelEvent] = []
        self._last: object = None
        self._ends_with_usage = False
        """Whether the last chunk reported the token counts of the whole message. Some servers report them in every chunk, which proves
        nothing: then only a last chunk without anything else counts.
        """
        self._chunks_with_usage = 0

    def feed(self, chunk: object) -> list[ModelEvent]:
        """Decode the next chunk, an SDK's object or a dict; return the events that it completes.

        Raises:
            UsageError: The chunk is invalid: a field of its message has a type that the API does not have. Or the stream has several
                choices or candidates.
        """
        self._last = chunk
        inner = _raw_chunk(chunk)
        if inner is None:
            return []
        value = plain_gemini(plain_value(inner))
        decoder = self._decoder or self._start(inner, value)
        if decoder is None or self._provider is None:
            return []
        check_chunk_shape(self._provider.api, value, self._reader)
        self._check_choice(value)
        refuse_automatic_calls(value, self._reader)
        if not self.message_id or (not self._has_own_id and _WHOLE_MESSAGE_FIELDS.get(self._provider.api) in value):
            self.message_id = safe_message_id(message_id(self._provider.api, value)) or self.message_id
            self._first_id = self._first_id or self.message_id
        self._container = container_id(self._provider.api, value) or self._container
        self._takes_bytes = self._takes_bytes or takes_bytes(inner, self._provider.api, of_boto3=self._of_boto3)
        events = decoder.feed_frame(value)
        counts = [event for event in events if type(event) is Usage]
        self._chunks_with_usage += bool(counts)
        self._ends_with_usage = bool(counts) and (
            not value.get("choices") or (self._chunks_with_usage == 1 and counts[-1].output_tokens > 0)
        )
        return self._keep(events)

    def close(self, *, broken: bool = False) -> ProviderResponse:
        """End the stream and return the whole message.

        Args:
            broken: Whether the stream ended before the message did.

        Raises:
            UsageError: No chunk was of a known API.
        """
        if self._decoder is None or self._provider is None:
            raise unknown_chunk_error(self._last, self._reader)
        if self._ends_with_usage and self._provider.api == "openai.chat" and not broken:
            # Some servers give no finish reason. The SDK hides the end marker, but the counts come only in front of it.
            self._decoder.end_stream()
        self._warn_of_ids()
        self._keep(self._decoder.close(broken=broken))
        found = finished_response(
            self._events, self._provider, message_id=self.message_id, names=self._names, takes_bytes=self._takes_bytes
        )
        if self._tools is not None and found.finish == "stop":
            self._tools.text_calls.warn_once(found.message)
        return replace(found, container=self._container) if self._container else found

    @property
    def origin(self) -> str:
        """The name of the API; empty until a chunk shows it."""
        return self._provider.api if self._provider is not None else ""

    def _warn_of_ids(self) -> None:
        if self._first_id != self.message_id:
            log.warning(
                "A stream of %s began with the message id '%s' and ended with '%s'. The last one counts, as in the whole response."
                " Check the proxies in between.",
                self.origin,
                self._first_id,
                self.message_id,
            )

    def _check_choice(self, value: Mapping[str, object]) -> None:
        """Raise `UsageError` for a choice or candidate besides the first one, which the decoder would ignore."""
        check_single_choice(value, self._reader)
        for field in ("choices", "candidates"):
            for choice in as_objects(value.get(field)):
                self._choice = choice.get("index") or 0 if self._choice is None else self._choice
                if (choice.get("index") or 0) != self._choice:
                    raise several_choices_error(self._reader, field, "several")

    def _start(self, chunk: object, value: Mapping[str, object]) -> Decoder | None:
        """Make the decoder, if the API is known or shown by this chunk."""
        if self._provider is None:
            api = api_of_chunk(value)
            if api is None:
                return None
            self._provider = shown_api(api, chunk)
        api = self._provider.api
        refuse_cohere_version_1(api, value, self._reader)
        refuse_begun_stream(api, value, self._reader)
        self._names = self._tools.names(api) if self._tools is not None else None
        self._decoder = codec(api).decoder(
            names=self._names, new_id=call_ids(lambda: self.message_id), calls_per_message=self._calls_per_message
        )
        return self._decoder

    def _keep(self, events: list[ModelEvent]) -> list[ModelEvent]:
        self._events += [event for event in events if type(event) in _KEPT_EVENTS]
        return events


def _is_chunk(value: object) -> bool:
    """Return whether a value is a chunk that shows its API, and not a whole chat completion."""
    plain = plain_gemini(plain_value(_raw_chunk(value)))
    return api_of_chunk(plain) is not None and not any("message" in choice for choice in as_objects(plain.get("choices")))


def _raw_chunk(chunk: object) -> object:
    """Return the chunk in the API's own format; None for an event that an SDK derived from others.

    Mistral's SDK wraps each chunk in an event, and OpenAI's `chat.completions.stream()` adds derived events.
    """
    if isinstance(chunk, Mapping):
        return _without_wrapper(chunk)
    if not is_model_object(chunk):
        return chunk
    kind = getattr(chunk, "type", None)
    if kind in _DERIVED_EVENTS or type(chunk).__module__.startswith("openai.lib.streaming.chat"):
        return getattr(chunk, "chunk", None) if kind == "chunk" else None
    inner = getattr(chunk, "data", None)
    return inner if is_model_object(inner) else chunk


def _without_wrapper(chunk: Mapping[str, object]) -> Mapping[str, object]:
    """Return the chunk in a dict of an event of Mistral's SDK; any other dict unchanged."""
    inner = chunk.get("data")
    return inner if len(chunk) == 1 and isinstance(inner, Mapping) else chunk
