"""Check that a response, or a chunk of a stream, has the shape that its API documents, as far as the message is concerned.

The decoders of `callgate.models.wire` ignore what they do not know, because the model's servers differ. So a message that a server or a
proxy has spoilt would be read as an empty answer, and the host's loop would end. What may be missing or null is optional here: content
beside calls, calls beside content, and the message of a blocked candidate. The calls themselves are checked on the route. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from callgate.errors import UsageError
from callgate.models.wire.json_fields import as_object
from callgate.provider_responses.api_detection import api_of_response

__all__ = ["check_chunk_shape", "check_response_shape"]

_Kind = Literal["object", "list", "text", "null"]
_WORDS: Mapping[str, str] = {"object": "an object", "list": "a list", "text": "text", "null": "null"}


class _Field(Struct, frozen=True):
    """A field of an object, with the types that its value may have. `null` says that it may also be missing."""

    name: str
    kinds: tuple[_Kind, ...]
    fields: tuple[_Field, ...] = ()
    """The fields of the object, or of each object in the list."""
    some_of: tuple[str, ...] = ()
    """The keys of which the object, or each object in the list, has at least one."""
    has_texts: bool = False
    """Whether the list may have texts beside objects."""


_CALLS = _Field("tool_calls", ("list", "object", "null"))
_TYPE = _Field("type", ("text",))
_TEXT = _Field("text", ("text",))
_CHAT = (_Field("content", ("text", "list", "null"), has_texts=True), _CALLS, _Field("function_call", ("object", "null")))
_CHAT_KEYS = (
    "role",
    "content",
    "tool_calls",
    "tool_plan",
    "function_call",
    "refusal",
    "reasoning",
    "reasoning_content",
    "audio",
    "thinking",
)
_PARTS = _Field("content", ("object", "null"), (_Field("parts", ("list", "null")),))
_CONVERSE = _Field("message", ("object",), (_Field("content", ("list",)),))
_OLLAMA = (_Field("content", ("text", "null")), _CALLS)
_DELTA = _Field("delta", ("object", "null"))
_STEPS = tuple([_Field(name, ("list", "null"), (_TYPE,)) for name in ("steps", "outputs")])

_RESPONSES: Mapping[str, tuple[_Field, ...]] = {
    "openai.chat": (_Field("choices", ("list", "null"), (_Field("message", ("object",), _CHAT, _CHAT_KEYS),)),),
    "openai.responses": (_Field("output", ("list",), (_TYPE,)),),
    "anthropic.messages": (_Field("content", ("list", "text"), (_TYPE,)),),
    "gemini.generate": (_Field("candidates", ("list", "null"), (_PARTS,), ("content", "finishReason")),),
    "gemini.interactions": _STEPS,
    "bedrock.converse": (_Field("output", ("object",), (_CONVERSE,)),),
    "cohere.chat": (_Field("message", ("object", "null"), _CHAT, _CHAT_KEYS), _Field("text", ("text", "null")), _CALLS),
    "ollama.chat": (_Field("message", ("object",), _OLLAMA, _CHAT_KEYS),),
}
"""By API: the fields of a whole response."""
_CHUNKS: Mapping[str, tuple[_Field, ...]] = {
    "openai.chat": (_Field("choices", ("list", "null"), (_Field("delta", ("object", "null"), _CHAT),)),),
    "openai.responses": (
        _Field("item", ("object", "null"), (_TYPE,)),
        _Field("response", ("object", "null"), (_Field("output", ("list", "null"), (_TYPE,)),)),
    ),
    "anthropic.messages": (_DELTA, _Field("content_block", ("object", "null"), (_TYPE,))),
    "gemini.generate": (_Field("candidates", ("list", "null"), (_PARTS,)),),
    "gemini.interactions": (_Field("step", ("object", "null"), (_TYPE,)), _DELTA),
    "bedrock.converse": tuple([_Field(name, ("object", "null"), (_DELTA,)) for name in ("contentBlockStart", "contentBlockDelta")]),
    "cohere.chat": (_Field("delta", ("object", "null"), (_Field("message", ("object", "null")),)),),
    "ollama.chat": (_Field("message", ("object", "null"), _OLLAMA),),
}
"""By API: the fields of a chunk whose value would be ignored if it had another type."""
_WITHOUT_OUTPUT = ("failed", "cancelled")
"""Statuses of responses that need have no output."""
_BY_TYPE: Mapping[object, tuple[_Field, ...]] = {
    "text": (_TEXT,),
    "output_text": (_TEXT,),
    "message": (_Field("content", ("list",), (_TYPE,)),),
    "model_output": (_Field("content", ("list",), (_TYPE,)),),
}
"""By the type of an item: its fields."""


def check_response_shape(api: str, value: Mapping[str, object], reader: str) -> None:
    """Raise `UsageError` for a response whose message has another shape than its API documents.

    Args:
        api: The API of the response. That of a model on Bedrock is recognised by the fields.
        value: The response as JSON data.
        reader: The name of the function that the host called.
    """
    value = as_object(value.get("response")) or value
    fields = _RESPONSES.get(api) or _RESPONSES.get(api_of_response(value) or "", ())
    if not value.get("error") and value.get("status") not in _WITHOUT_OUTPUT:
        _check(value, fields, "", f"{reader} was given a response of {api}")


def check_chunk_shape(api: str, value: Mapping[str, object], reader: str) -> None:
    """Raise `UsageError` for a chunk that has another shape than its API documents."""
    fields = _CHUNKS.get(api)
    if fields is not None and not value.get("error"):
        _check(value, fields, "", f"{reader} was given a chunk of {api}")


def _check(value: Mapping[str, object], fields: tuple[_Field, ...], path: str, given: str) -> None:
    for field in fields:
        found, where = value.get(field.name), f"{path}{field.name}"
        kind = _kind(found)
        if kind not in field.kinds:
            wanted = " or ".join(_WORDS[one] for one in field.kinds)
            raise _invalid_shape(given, where, "missing" if field.name not in value else _WORDS.get(kind, kind), wanted)
        if isinstance(found, list):
            for place, item in enumerate(found):
                if not (field.has_texts and isinstance(item, str)):
                    _check_object(item, field, f"{where}[{place}]", given)
        elif isinstance(found, dict):
            _check_object(found, field, where, given)


def _check_object(value: object, field: _Field, where: str, given: str) -> None:
    if not isinstance(value, dict):
        kind = _kind(value)
        raise _invalid_shape(given, where, _WORDS.get(kind, kind), "an object")
    if field.some_of and value.keys().isdisjoint(field.some_of):
        raise _invalid_shape(given, where, "an object without any of its fields", f"an object with {' or '.join(field.some_of[:3])}")
    _check(value, field.fields, f"{where}.", given)
    if _TYPE in field.fields:
        _check(value, _BY_TYPE.get(value["type"], ()), f"{where}.", given)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return {dict: "object", list: "list", str: "text", bool: "true or false"}.get(type(value), "a number")


def _invalid_shape(given: str, where: str, found: str, wanted: str) -> UsageError:
    return UsageError(
        f"{given} whose {where} is {found}; it must be {wanted}. The server or a proxy has spoilt it: nothing of it runs. Request it again,"
        " and hand it on as the provider sent it."
    )
