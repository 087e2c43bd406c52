"""Read a whole response: the message, its calls, and how each was proved complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from callgate._engine_limits import Limits
from callgate.calls import RawCall
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, ToolCall
from callgate.models.model_events import COMPLETE_REASONS, CallReopened, CallSealed, Fault, Finished, FinishReason, ModelEvent, Usage
from callgate.models.wire import codec
from callgate.models.wire.json_fields import as_object, as_objects
from callgate.models.wire.tool_names import WireNames
from callgate.provider_responses.api_detection import api_of_response, container_id, message_id
from callgate.provider_responses.message_shapes import check_response_shape
from callgate.provider_responses.plain_values import camel_case_keys, has_bytes, plain_value
from callgate.provider_responses.provider_names import ProviderApi, provider_api, shown_api
from callgate.provider_responses.refused_values import (
    check_complete,
    check_single_choice,
    refuse_chunk,
    refuse_cohere_version_1,
    refuse_non_response,
    unknown_response_error,
    warn_of_automatic_calls,
)
from callgate.provider_responses.tool_definitions import ToolDefinitions

__all__ = [
    "ProviderResponse",
    "call_ids",
    "finished_response",
    "plain_gemini",
    "raw_call",
    "read_response",
    "safe_message_id",
    "same_call",
    "takes_bytes",
]

_MOST_ID_CHARS = 200
_DEFAULTS = Limits()
_NO_ID = "-"
"""Stands for the id of a message that has none."""
_SNAKE_CASE_FIELDS = frozenset({"usage_metadata", "prompt_feedback", "model_version", "response_id", "sdk_http_response"})


class ProviderResponse(Struct, frozen=True, kw_only=True):
    """One response of a model, independent of the provider's format."""

    provider: ProviderApi
    """The API that it came from."""
    message: AssistantMessage
    """The model's message."""
    calls: tuple[RawCall, ...] = ()
    """The message's calls for the engine, in order; calls that the provider ran itself are not among them."""
    host_calls: tuple[Mapping[str, Any], ...] = ()
    """The items of the message that the host must answer itself, as received: calls of tools that the provider defines and the host runs,
    such as `computer_call`, and requests for approval. They are in no tool's format, so they are not among `calls`.
    """
    finish: FinishReason
    """Why the message ended."""
    said: str = ""
    """The same in the provider's own word."""
    explanation: str = ""
    """The provider's text about it; empty if it gave none."""
    message_id: str = ""
    """The provider's id of the message; empty if there is none."""
    container: str = ""
    """The id of the container in which Anthropic has run code for the message; empty if there is none."""
    model: str = ""
    """The model that answered, by the provider's name for it; empty if the response does not name it."""
    usage: Usage | None = None
    fault: Fault | None = None
    """The error that the provider reported in the response, or None."""
    takes_bytes: bool = False
    """Whether the SDK that returned the response takes bytes where JSON has Base64, as boto3 does."""
    names: WireNames | None = None
    """The names of tools and parameters in the API. None: they are the tools' own."""


def read_response(
    response: object,
    provider: str | None = None,
    *,
    tools: ToolDefinitions | None = None,
    message_id: str = "",
    calls_per_message: int = _DEFAULTS.calls_per_message,
    reader: str = "read_response",
) -> ProviderResponse:
    """Read a whole response of a provider.

    Args:
        response: The SDK's object, or a dict of it.
        provider: The provider or API; see `provider_api`. None: it is recognised by the response's fields.
        tools: The tools that the request declared. None: their names were sent unchanged.
        message_id: The host's own id of the message, used in place of the provider's.
        calls_per_message: Maximum number of calls.
        reader: The name of the function that the host called, for errors.

    Raises:
        UsageError: It is not a whole response, its format is not known, its message is spoilt, or it has several choices.
    """
    refuse_non_response(response, reader)
    value = plain_gemini(plain_value(response))
    api = _api_of(response, value, provider, reader)
    check_complete(value, reader)
    refuse_chunk(value, reader)
    refuse_cohere_version_1(api.api, value, reader)
    check_single_choice(value, reader)
    check_response_shape(api.api, value, reader)
    warn_of_automatic_calls(value, reader)
    found_id = message_id or _message_id(api.api, value)
    names = tools.names(api.api) if tools is not None else None
    new_id = call_ids(lambda: found_id)
    decoder = codec(api.api).decoder(streamed=False, names=names, new_id=new_id, calls_per_message=calls_per_message)
    events = decoder.feed_body(value)
    found = finished_response(
        [*events, *decoder.close()], api, message_id=found_id, names=names, takes_bytes=takes_bytes(response, api.api)
    )
    if tools is not None and found.finish == "stop":
        tools.text_calls.warn_once(found.message)
    container = container_id(api.api, value)
    return replace(found, container=container) if container else found


def finished_response(
    events: Iterable[ModelEvent], api: ProviderApi, *, message_id: str, names: WireNames | None, takes_bytes: bool
) -> ProviderResponse:
    """Return the response that all events of a message make. The last one is `Finished`."""
    closed: dict[int, Literal["sealed", "finished", "cut"]] = {}
    finished: Finished | None = None
    for event in events:
        if type(event) is CallSealed:
            closed[event.position] = event.closed
        elif type(event) is CallReopened:
            closed.pop(event.position, None)
        elif type(event) is Finished:
            finished = event
    assert finished is not None
    default: Literal["finished", "cut"] = "finished" if finished.reason in COMPLETE_REASONS else "cut"
    return ProviderResponse(
        provider=api,
        message=finished.message,
        calls=tuple(raw_call(call, closed.get(place, default), api.api) for place, call in enumerate(finished.message.calls)),
        host_calls=codec(api.api).host_calls(finished.message),
        finish=finished.reason,
        said=finished.said,
        explanation=finished.explanation,
        message_id=message_id,
        model=finished.model,
        usage=finished.usage,
        fault=finished.fault,
        takes_bytes=takes_bytes,
        names=names,
    )


def raw_call(call: ToolCall, closed: Literal["sealed", "finished", "cut"], origin: str) -> RawCall:
    """Convert a message's call to the engine's `RawCall`; free text becomes the single argument `input`.

    Args:
        closed: How the call's arguments were proved complete.
        origin: Where the call comes from; recorded.
    """
    arguments: object = {"input": call.arguments} if call.custom else call.arguments
    raw = RawCall(id=call.id, name=call.name, arguments=arguments, origin=origin, closed=closed)  # type: ignore[arg-type]
    if not (call.reasoning or call.lifted):
        return raw
    return replace(raw, reasoning=call.reasoning if isinstance(call.reasoning, str) else "", lifted=call.lifted is True)


def same_call(before: ToolCall, now: ToolCall) -> bool:
    """Return whether two versions of a call have the same name, arguments and id."""
    return (before.name, before.arguments, before.id, before.custom) == (now.name, now.arguments, now.id, now.custom)


def call_ids(message_id: Callable[[], str]) -> Callable[[], str]:
    """Return a function that makes ids for calls without one.

    They are made from the id of the message and the call's number, so that a message that is handed in again has the same calls, whole or
    as chunks. Without an id of the message, they are only numbered.
    """
    numbers = count()

    def next_id() -> str:
        found = message_id() or _NO_ID
        return f"call_{hashlib.sha256(found.encode()).hexdigest()[:16]}_{next(numbers)}"

    return next_id


def plain_gemini(value: object) -> dict[str, object]:
    """Return JSON data as a dict, with the keys of Gemini's API if Google's SDK wrote them in its own way."""
    plain = value if isinstance(value, dict) else {}
    if "candidates" in plain and (not _SNAKE_CASE_FIELDS.isdisjoint(plain) or _has_snake_case(plain["candidates"])):
        renamed = camel_case_keys(plain)
        assert isinstance(renamed, dict)
        return renamed
    return plain


def _has_snake_case(candidates: object) -> bool:
    parts = [part for one in as_objects(candidates) for part in as_objects(as_object(one.get("content")).get("parts"))]
    return any("finish_reason" in one for one in as_objects(candidates)) or any("function_call" in part for part in parts)


def takes_bytes(given: object, api: str, *, of_boto3: bool = False) -> bool:
    """Return whether a response or chunk came from boto3, which takes bytes where JSON has Base64.

    Args:
        of_boto3: Whether it is known to be of boto3, although the chunk may not show it.
    """
    if api != "bedrock.converse":  # boto3 sends the body of InvokeModel as JSON
        return False
    return of_boto3 or (isinstance(given, Mapping) and ("ResponseMetadata" in given or has_bytes(given)))


def safe_message_id(found: str) -> str:
    """Return a message's id in a form that can be recorded: a digest if it is long or not ASCII."""
    if len(found) <= _MOST_ID_CHARS and found.isascii():
        return found
    return hashlib.sha256(found.encode("utf-8", "surrogatepass")).hexdigest()


def _message_id(api: str, value: Mapping[str, object]) -> str:
    return safe_message_id(message_id(api, value))


def _api_of(given: object, value: Mapping[str, object], provider: str | None, reader: str) -> ProviderApi:
    """Return the API of a response: the named one, unless the response shows another one; else the one that it shows."""
    shown = api_of_response(value)
    if provider is None:
        if shown is None:
            raise unknown_response_error(given, value, reader)
        return shown_api(shown, given)
    named = provider_api(provider)
    if shown not in (None, named.api) and named.api != "bedrock.invoke":  # it passes on the formats of other APIs
        raise UsageError(f"{reader} was told that the response is of '{provider}' ({named.api}), but it has the format of {shown}.")
    return named
