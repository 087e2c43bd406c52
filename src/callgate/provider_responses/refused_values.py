"""Errors for values that are not a provider's response, or not a stream of chunks: what was given, and what to give instead."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping

from callgate.errors import UsageError
from callgate.models.wire.json_fields import as_objects
from callgate.models.wire.server_errors import find_error
from callgate.provider_responses.api_detection import api_of_response
from callgate.provider_responses.plain_values import is_model_object

__all__ = [
    "check_complete",
    "check_single_choice",
    "refuse_automatic_calls",
    "refuse_begun_stream",
    "refuse_cohere_version_1",
    "refuse_non_response",
    "refuse_non_stream",
    "several_choices_error",
    "unknown_chunk_error",
    "unknown_response_error",
    "warn_of_automatic_calls",
]

log = logging.getLogger("callgate")
_RESPONSES = (
    "Give it the whole response of an SDK (OpenAI, Anthropic, google-genai, boto3, Mistral, Cohere, Ollama), as it is or as a dict, or name"
    " its format with provider=..."
)
_FRAMEWORKS = {
    "langchain_core": "LangChain",
    "pydantic_ai": "Pydantic AI",
    "agents": "the OpenAI Agents SDK",
    "agent_framework": "Microsoft Agent Framework",
}
"""Frameworks with messages of their own, by the names of their packages."""
_AUTOMATIC_CALLS = "automaticFunctionCallingHistory"
"""The field in which google-genai reports the calls that it has run itself."""
_OFFER_SCHEMAS = "Offer config={'tools': engine.schemas('gemini')} in place of functions, and disable automatic function calling."
_COHERE_VERSION_1 = frozenset({"text", "generations", "tool_calls", "event_type"})
"""Fields of version 1 of Cohere's API. Version 2 has a `message` instead, and events with a `type`."""
_WITHIN_COHERE = ("content-", "tool-", "citation-", "message-end")
"""How the types of Cohere's events after `message-start` begin."""
_PIECES = frozenset({"tool_calls", "tool_use", "function_call", "toolUse", "role", "parts", "function", "finish_reason"})


def refuse_non_response(value: object, reader: str) -> None:
    """Raise `UsageError` for a value that is neither a dict nor an object of an SDK.

    Args:
        value: What the host gave.
        reader: The name of the function that it was given to.
    """
    if isinstance(value, Mapping):
        if callable(getattr(value.get("body"), "read", None)):
            raise UsageError(f"{reader} was given boto3's response with an unread body. Give it json.loads(response['body'].read()).")
        if "stream" in value and "ResponseMetadata" in value:
            raise UsageError(
                f"{reader} was given a stream. Give the whole dict, which has the id of the message, to engine.watch; or read the stream,"
                f" and give {reader} the dict with 'stream' as the list of its chunks."
            )
        return
    if is_model_object(value):
        return
    raise UsageError(f"{reader} was given {_describe_type(value)}{_advice(value)}")


def refuse_non_stream(value: object) -> None:
    """Raise `UsageError` for a value that is not an iterable of chunks."""
    if inspect.isawaitable(value):
        raise UsageError(f"engine.watch was given {_describe_type(value)}. Await the request first, and give the stream that it returns.")
    if isinstance(value, Mapping) or is_model_object(value):
        raise UsageError(
            f"engine.watch was given {_describe_type(value)}, which is not a stream. Give a whole response to engine.respond, or request a"
            " stream."
        )
    if hasattr(value, "__enter__") or hasattr(value, "__aenter__"):
        if not (hasattr(value, "__aiter__") or hasattr(value, "__iter__")):
            raise UsageError(
                f"engine.watch was given {_describe_type(value)}. Enter it first: `async with ... as stream`, and give it `stream`."
            )
    elif isinstance(value, (str, bytes)) or not (hasattr(value, "__aiter__") or hasattr(value, "__iter__")):
        what = (
            "a raw response. Give it response.parse()."
            if _is_raw_response(value)
            else "which is not a stream. Give it the stream that the SDK returns."
        )
        raise UsageError(f"engine.watch was given {_describe_type(value)}, {what}")


def unknown_response_error(given: object, value: Mapping[str, object], reader: str) -> UsageError:
    """Return the error for a value that is not a whole response of a known API.

    Args:
        given: What the host gave.
        value: The same as JSON data.
    """
    error = find_error(value) if "choices" not in value else None
    if error is not None or value.get("type") == "error":
        code, text = error or ("error", "")
        return UsageError(
            f"{reader} was given an error of the provider ({code}: {text:.200}), not a response. Handle errors before, and give it the"
            " response of a request that succeeded."
        )
    if framework := _framework_of(given):
        return UsageError(f"{reader} was given {_describe_type(given)}{framework}")
    if str(value.get("type")).startswith("response."):
        return UsageError(
            f"{reader} was given {_describe_type(given)}, an event of a stream. Give the whole stream to engine.watch, or give {reader} the"
            " `event.response` of the last event, such as `response.completed`."
        )
    what = f"{reader} was given {_describe_type(given)}, which is not a whole response of a known provider."
    if not _PIECES.isdisjoint(value):
        what += " It looks like a part of one."
    return UsageError(f"{what} {_RESPONSES}")


def refuse_begun_stream(api: str, first: Mapping[str, object], reader: str) -> None:
    """Refuse a stream of Anthropic or Cohere that begins within a message: a part, such as a call or the id, would be missing unnoticed.

    Args:
        first: The first chunk.

    Raises:
        UsageError: The host has read the beginning itself.
    """
    kind = str(first.get("type"))
    of_anthropic = kind.startswith("content_block_") and (kind != "content_block_start" or bool(first.get("index")))
    of_cohere = kind.startswith(_WITHIN_COHERE)
    if (api == "anthropic.messages" and of_anthropic) or (api == "cohere.chat" and of_cohere):
        raise UsageError(
            f"{reader} was given a stream whose beginning has been read: it starts with {kind}, so a part of the message is missing."
            " Wrap the stream before you read it."
        )


def unknown_chunk_error(value: object, reader: str) -> UsageError:
    """Return the error for a stream that ended without a chunk of a known API."""
    if value is None:
        return UsageError(
            f"{reader} has read a stream without any chunk. It may have been read before, for example by iterating Anthropic's"
            " `stream.text_stream`: request it again, iterate only the chunks that engine.watch yields, and show those of the type 'text'."
        )
    return UsageError(
        f"{reader} has read a whole stream without a chunk of a known provider; the last was {_describe_type(value)}. Give it the"
        " stream of an SDK, not its texts, or name its format with provider=..."
    )


def warn_of_automatic_calls(value: Mapping[str, object], reader: str) -> None:
    """Log that Google's SDK has run calls itself. The response is read nevertheless, because it reports what they have done."""
    if value.get(_AUTOMATIC_CALLS):
        log.warning(
            "%s was given a response before which google-genai has run calls of the model itself: no policy was asked about them, they are"
            " not in the journal, and reply.messages has none of them. %s",
            reader,
            _OFFER_SCHEMAS,
        )


def refuse_automatic_calls(value: Mapping[str, object], reader: str) -> None:
    """Refuse a stream in which Google's SDK has run calls itself: its chunks have these calls, which would run a second time.

    Raises:
        UsageError: A chunk of a later request reports such calls.
    """
    if value.get(_AUTOMATIC_CALLS):
        raise UsageError(
            f"{reader} was given a stream in which google-genai has run calls of the model itself: no policy was asked about them, and they"
            f" are not in the journal. Nothing of the stream runs. {_OFFER_SCHEMAS}"
        )


def refuse_cohere_version_1(api: str, value: Mapping[str, object], reader: str) -> None:
    """Refuse a response, or an event of a stream, of version 1 of Cohere's API. Its calls have no ids, and its client takes other messages.

    Raises:
        UsageError: It is one.
    """
    if api == "cohere.chat" and "type" not in value and "message" not in value and not _COHERE_VERSION_1.isdisjoint(value):
        raise UsageError(
            f"{reader} was given an answer of version 1 of Cohere's API (cohere.Client), whose messages have another format; nothing of it"
            " runs. Use cohere.ClientV2; or hand each call in yourself: await engine.call(RawCall(name=call.name,"
            " arguments=call.parameters, id=...)), with an id of your own."
        )


def check_complete(value: Mapping[str, object], reader: str) -> None:
    """Raise `UsageError` for a response that the provider still works on, in the background. Its calls may still change."""
    if value.get("status") in ("queued", "in_progress") and api_of_response(value) in ("openai.responses", "gemini.interactions"):
        raise UsageError(
            f"{reader} was given a response with the status '{value['status']}', which is not complete. Wait for it: retrieve it until it"
            " has another status."
        )


def refuse_chunk(value: Mapping[str, object], reader: str) -> None:
    """Raise `UsageError` for a chunk of a stream, which has no whole message."""
    choices = as_objects(value.get("choices"))
    of_ollama = value.get("done") is False and "message" in value
    if of_ollama or value.get("object") == "chat.completion.chunk" or any("delta" in one and "message" not in one for one in choices):
        raise UsageError(f"{reader} was given a chunk of a stream. Give the whole stream to engine.watch, or give a list of all chunks.")


def check_single_choice(value: Mapping[str, object], reader: str) -> None:
    """Raise `UsageError` for a response with several answers: only one can become part of the conversation."""
    for field in ("choices", "candidates"):
        count = len(as_objects(value.get(field)))
        if count > 1:
            raise several_choices_error(reader, field, count)


def several_choices_error(reader: str, field: str, count: int | str) -> UsageError:
    """Return the error for a response or stream with several answers.

    Args:
        field: `choices` or `candidates`.
    """
    return UsageError(
        f"{reader} was given a response with {count} {field}, and a conversation continues with one. Request one, or give it a copy of the"
        f" response whose `{field}` has only the one that you chose."
    )


def _describe_type(value: object) -> str:
    """Return a description of a value: its type, and the keys of a dict."""
    if isinstance(value, Mapping):
        keys = ", ".join(f"'{key!s:.40}'" for key in list(value)[:6])
        return f"a dict with the keys {keys}" if keys else "an empty dict"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def _is_raw_response(value: object) -> bool:
    """Return whether a value is what an SDK's `with_raw_response` returns."""
    return callable(getattr(value, "parse", None)) and hasattr(value, "headers")


def _framework_of(value: object) -> str:
    framework = _FRAMEWORKS.get(type(value).__module__.partition(".")[0])
    if framework is None:
        return ""
    return (
        f", which is of {framework} and not of a provider's SDK. Give the framework's agent callgate's wrapper (callgate.integrations), or"
        " hand each call in yourself: await engine.call(RawCall(name=..., arguments=..., id=...))."
    )


def _advice(value: object) -> str:
    if inspect.isawaitable(value):
        return ". Await the request first."
    if isinstance(value, type):
        return f". {_RESPONSES}"
    if framework := _framework_of(value):
        return framework
    if isinstance(value, (str, bytes)):
        return ", not a response. If it is the JSON of one, give json.loads(...) of it."
    if isinstance(value, (list, tuple)):
        return f", a part of a response or several. {_RESPONSES}"
    if _is_raw_response(value):
        return ", a raw response. Give it response.parse()."
    if callable(getattr(value, "json", None)) and hasattr(value, "status_code"):
        return ", an HTTP response. Give it response.json()."
    if hasattr(value, "__aiter__") or hasattr(value, "__next__") or hasattr(value, "__iter__"):
        return ", a stream. Give it to engine.watch, or read it and give a list of all its chunks."
    return f". {_RESPONSES}"
