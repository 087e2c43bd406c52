"""Read a call from an item of a provider's message, as its SDK returns it: an object or a dict.

Used by `calls`, which makes a `RawCall` from the fields. An item that an SDK may have handed over as a call of a
message is never an error here: an invalid one becomes a call without a name. Whatever cannot be such an item, such as
None, text or a whole response, is a mistake of the host and raises. Imports no SDK: it reads keys or attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypedDict

from callgate._json import json_text
from callgate.errors import UsageError

__all__ = ["CALL_KEYS", "CallFields", "argument_value", "chat_payload", "is_plain_call", "keys_beside", "provider_call", "text_value"]

CALL_KEYS = frozenset({"id", "type", "tool", "name", "parameters", "arguments", "reasoning"})
_FINISHED = frozenset(
    {"stop", "tool_calls", "tool_call", "function_call", "tool_use", "end_turn", "stop_sequence", "pause_turn", "complete"}
)
_OPEN_STATUSES = frozenset({"in_progress", "incomplete"})
_RESPONSES_TYPES = frozenset({"function_call", "custom_tool_call"})
_GEMINI_KEYS = ("function_call", "functionCall")
_WHOLE_KEYS = ("tool_calls", "choices", "output", "candidates", "content", "message", "parts", "toolCalls", "role")
_OTHER_TYPES = frozenset({"text", "thinking", "redacted_thinking", "reasoning", "message", "tool_result", "server_tool_use", "output_text"})
_ITEM_KEYS = frozenset(
    {"id", "type", "index", "status", "call_id", "function", "custom", "functionCall", "function_call", "toolUse", "toolUseId"}
    | {"name", "arguments", "args", "input"}
)
"""The keys of a call in one of the formats. A dict with one of them may be a call that a server has spoilt."""
_OWN_KEYS = frozenset({"tool", "parameters"})
_CALL_TYPES = frozenset({"function", "custom"})
_Item = object
"""A dict, or an object with attributes."""


class CallFields(TypedDict):
    """The fields of a `RawCall` that an item of a message gives."""

    id: str
    name: str
    arguments: str | bytes | Mapping[str, object]
    origin: str
    closed: Literal["finished", "cut"]
    reasoning: str
    beside: Mapping[str, object] | None


def provider_call(item: _Item, reader: str, finish_reason: str | None, *, any_json: bool = False) -> CallFields | None:
    """Return the fields of one call in a provider's format; None if it is an invalid call in one of the formats.

    Args:
        item: One call of a message, as an SDK's object or a dict.
        reader: The name of the function that the host called, for error messages.
        finish_reason: Why the message ended, as the provider says it. A value that does not mean a complete message
            marks the call as cut.
        any_json: Whether all JSON data but a whole response may be an invalid call, because a model wrote the JSON.

    Raises:
        UsageError: `item` is not one call, and cannot be an invalid one.
    """
    _refuse_piece(item, reader, any_json=any_json)
    fields = _fields(item)
    if fields is None:
        _refuse_if_mistaken(item, reader, any_json=any_json)
        return None
    if not _is_complete(finish_reason):
        fields["closed"] = "cut"
    return fields


def is_plain_call(item: object) -> bool:
    """Return whether a dict is a call in no provider's format, with its name beside its parameters."""
    if not isinstance(item, Mapping) or "tool" in item:
        return isinstance(item, Mapping)
    if "name" not in item or "toolUseId" in item or _word(item, "type") == "tool_use" or _is_conversation_entry(item):
        return False
    return not ("call_id" in item or {"name", "args"} <= item.keys() <= {"name", "args", "id", "type"})


def _fields(item: _Item) -> CallFields | None:
    if isinstance(item, (str, bytes, list, tuple)):
        return None
    kind = _word(item, "type")
    if kind in _RESPONSES_TYPES and _get(item, "function") is None:
        return _responses_item(item)
    if kind == "tool_use":
        return _call(item, "input", "anthropic.messages")
    if _is_conversation_entry(item):
        return _call(item, "arguments", "mistral.conversations", id_key="tool_call_id")
    if (inner := _get(item, "toolUse")) is not None:
        return _call(inner, "input", "bedrock.converse", id_key="toolUseId")
    if _get(item, "toolUseId") is not None:
        return _call(item, "input", "bedrock.converse", id_key="toolUseId")
    if (inner := _get(item, "function")) is not None and (isinstance(item, Mapping) or _has(inner, "name")):
        return _chat_item(item)
    if _get(item, "custom") is not None:
        return _chat_item(item)
    return _gemini_part(item) or _untyped_item(item)


def _is_conversation_entry(item: _Item) -> bool:
    """Return whether this is a call of Mistral's conversations API, whose `id` is that of the entry and not of the call."""
    return all(_has(item, key) for key in ("tool_call_id", "name", "arguments"))


def chat_payload(item: _Item) -> tuple[_Item, bool]:
    """Return the `function` or `custom` of a call of a chat completion, and whether it is the custom one.

    Some servers and SDKs send both, one of them empty: then the filled one is the call's. The type decides between two filled ones.
    """
    function, custom = _get(item, "function"), _get(item, "custom")
    if custom is None or (not _is_empty(function) and (_is_empty(custom) or _word(item, "type") != "custom")):
        return function, False
    return (custom, True) if function is None or not _is_empty(custom) or _word(item, "type") == "custom" else (function, False)


def _chat_item(item: _Item) -> CallFields:
    function, is_custom = chat_payload(item)
    if is_custom:
        return {**_call(function, "input", "openai.chat", free_text=True), "id": _call_id(item)}
    fields = _call(function, "arguments", "openai.chat")
    fields["id"] = _call_id(item)
    fields["reasoning"] = fields["reasoning"] or text_value(_get(item, "reasoning"))
    if isinstance(function, Mapping):
        fields["beside"] = keys_beside(function)
    return fields


def _call_id(item: _Item) -> str:
    """Return the id of a chat completion's call; empty if it has none. Mistral's SDK has the text `null` for a missing one."""
    call_id = text_value(_get(item, "id"))
    return "" if call_id == "null" else call_id


def _responses_item(item: _Item) -> CallFields:
    free_text = _word(item, "type") == "custom_tool_call"
    fields = _call(item, "input" if free_text else "arguments", "openai.responses", id_key="call_id", free_text=free_text)
    fields["id"] = fields["id"] or text_value(_get(item, "id"))
    if _word(item, "status") in _OPEN_STATUSES:
        fields["closed"] = "cut"
    return fields


def _gemini_part(item: _Item) -> CallFields | None:
    for key in _GEMINI_KEYS:
        inner = _get(item, key)
        if inner is not None and _get(item, "tool_calls") is None:
            found = _untyped_item(inner)
            return found or _call(inner, "args", "gemini.generate")
    return None


def _untyped_item(item: _Item) -> CallFields | None:
    """Return a call that has its name beside its arguments and no type: Gemini's format, and OpenAI's first one."""
    for key, origin in (("arguments", "openai.chat"), ("args", "gemini.generate")):
        if _has(item, key) and _has(item, "name"):
            fields = _call(item, key, origin)
            if _get(item, "will_continue"):
                fields["closed"] = "cut"
            return fields
    if isinstance(item, Mapping) and "name" in item and item.keys() <= {"id", "name"}:  # a call of Gemini without arguments
        return _call(item, "args", "gemini.generate")
    return None


def _call(item: _Item, arguments_key: str, origin: str, *, id_key: str = "id", free_text: bool = False) -> CallFields:
    arguments = _get(item, arguments_key)
    return {
        "id": text_value(_get(item, id_key)),
        "name": text_value(_get(item, "name")),
        "arguments": {"input": text_value(arguments)} if free_text else argument_value(arguments),
        "origin": origin,
        "closed": "finished",
        "reasoning": text_value(_get(item, "reasoning")),
        "beside": None,
    }


def _get(item: _Item, key: str) -> object:
    return item.get(key) if isinstance(item, Mapping) else getattr(item, key, None)


def _word(item: _Item, key: str) -> str:
    value = _get(item, key)
    return value if isinstance(value, str) else ""


def _has(item: _Item, key: str) -> bool:
    return key in item if isinstance(item, Mapping) else hasattr(item, key)


def _is_empty(item: _Item) -> bool:
    return item is None or not (_get(item, "name") or _get(item, "arguments") or _get(item, "input"))


def _is_complete(finish_reason: object) -> bool:
    word = getattr(finish_reason, "value", finish_reason)
    return isinstance(word, str) and word.lower() in _FINISHED


def keys_beside(item: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the keys beside the arguments of a call; None if there are none."""
    return {key: value for key, value in item.items() if key not in CALL_KEYS} or None


def text_value(value: object) -> str:
    """Return a field as text; empty if there is none."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def argument_value(value: object) -> str | bytes | Mapping[str, object]:
    """Return the arguments in a form that `RawCall` accepts.

    JSON data that is not an object becomes JSON text, which the parser refuses.
    """
    if value is None:
        return ""
    if isinstance(value, (str, bytes, Mapping)):
        return value
    try:
        return json_text(value)
    except (TypeError, ValueError, RecursionError):  # not JSON data, so not from a model; parsing reports it
        return str(value)


# What is not a call


def _refuse_if_mistaken(item: _Item, reader: str, *, any_json: bool) -> None:
    if isinstance(item, (str, bytes, bool, int, float)) or item is None:
        if any_json:
            return
        raise UsageError(f"{reader} was given {_describe(item)}, which is not a call{_guess_origin(item)}. {_HOW}")
    if isinstance(item, (list, tuple)):
        if not any_json or any(not isinstance(one, (list, tuple)) and _fields(one) is not None for one in item):
            raise UsageError(
                f"{reader} was given {_describe(item)}. It reads one call: give it each item, as [{reader}(item) for item in ...]."
            )
        return
    kind = _word(item, "type")
    if kind in _OTHER_TYPES or (kind and kind not in _CALL_TYPES and not any_json):
        raise UsageError(f"{reader} was given {_describe(item)} of type '{kind}', which is not a call. {_HOW}")
    if any(_get(item, key) is not None for key in _WHOLE_KEYS) and not _has(item, "tool"):
        raise UsageError(f"{reader} was given {_describe(item)}, a message or response, which is not one call. {_HOW}")
    if not (any_json and isinstance(item, Mapping)):
        _refuse_other_keys(item, reader)


def _refuse_other_keys(item: _Item, reader: str) -> None:
    """Refuse an object or a dict that no SDK hands over as a call."""
    if not isinstance(item, Mapping):
        if not _word(item, "type"):
            raise UsageError(f"{reader} was given {_describe(item)}, which is not a call. {_HOW}")
    elif _OWN_KEYS & item.keys():
        raise UsageError(f"{reader} was given {_describe(item)}, a call in no provider's format. RawCall.from_dict reads it.")
    elif item and not _ITEM_KEYS & item.keys():
        raise UsageError(f"{reader} was given {_describe(item)}, which is not a call. {_HOW}")


def _guess_origin(item: _Item) -> str:
    """Return what the value probably is, as the rest of a sentence."""
    if item is None:
        return ": a message without calls has none to read"
    if isinstance(item, (str, bytes)) and item.strip()[:1] in ("{", "[", b"{", b"["):
        return " but JSON text: decode it first"
    return ""


def _refuse_piece(item: _Item, reader: str, *, any_json: bool) -> None:
    is_event = _word(item, "type") == "function.call.delta" and not (any_json and isinstance(item, Mapping))
    if is_event or "Delta" in type(item).__name__:
        raise UsageError(
            f"{reader} was given {_describe(item)}, a piece of a streamed call. Join the pieces of the message first; OpenAI's and"
            " Anthropic's `client....stream(...)` helpers do, and engine.watch for the chat of every SDK."
        )


_HOW = (
    "Give it one call of the message: an item of OpenAI's `message.tool_calls`, an Anthropic `tool_use` block, a Gemini part with a"
    " `function_call`, a Bedrock `toolUse` block, or a dict of one of these."
)


def _describe(item: _Item) -> str:
    if isinstance(item, Mapping):
        return f"a dict with the keys {_join(item)}"
    if item is None or isinstance(item, (bool, int, float)):
        return f"{item!r:.40}"
    if isinstance(item, (str, bytes)):
        return f"the {'text' if isinstance(item, str) else 'bytes'} {item[:40]!r}{'...' if len(item) > 40 else ''}"
    if isinstance(item, (list, tuple)):
        return f"a {type(item).__name__} of {len(item)}"
    name = type(item).__name__
    return f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"


def _join(keys: Iterable[object]) -> str:
    return ", ".join(f"'{key!s:.40}'" for key in list(keys)[:6])
