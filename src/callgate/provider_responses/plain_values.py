"""Turn what an SDK returns into JSON data in the format of the provider's API.

The SDKs' objects are pydantic models of the API's JSON; boto3 returns dicts with bytes. Bytes become Base64 text, as in JSON; `with_bytes`
restores them for boto3's next request, because it takes no Base64. Google's SDK has bytes, too, and reads Base64 in dicts.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from enum import Enum

__all__ = ["camel_case_keys", "has_bytes", "is_model_object", "plain_value", "with_bytes"]

_SNAKE = re.compile(r"_([a-z])")
_HOST_DATA = frozenset({"input", "args", "response", "json", "arguments"})
"""Fields that hold values of tools, which are never changed."""
_BYTE_FIELDS = frozenset({"bytes", "redactedContent"})
"""Fields of Bedrock that hold bytes."""
_JSON_TYPES = frozenset({str, int, float, bool, type(None), dict, list})
_TEXT_API_FIELDS = frozenset({"choices", "object", "type", "message"})
"""Fields of the APIs whose SDKs return no bytes."""
_UNKNOWN_MEMBER = "SDK_UNKNOWN_MEMBER"
_URL_SAFE = str.maketrans("-_", "+/")


def is_model_object(value: object) -> bool:
    """Return whether a value is an object of an SDK, and not its class."""
    return not isinstance(value, type) and callable(getattr(value, "model_dump", None))


def plain_value(value: object) -> object:
    """Return an SDK's object, or a dict that may contain some, as JSON data. Unset fields are left out.

    Values of any other type are returned unchanged.
    """
    if type(value) is dict and _is_json(value):
        return value
    if is_model_object(value):
        return _dump(value)
    try:
        return _as_plain(value)
    except RecursionError:
        return value


def _is_json(value: dict[object, object]) -> bool:
    """Return whether a dict is JSON data already, as far as its first two levels show; those of Bedrock and Gemini may contain bytes."""
    if _TEXT_API_FIELDS.isdisjoint(value):
        return False
    for item in value.values():
        if type(item) not in _JSON_TYPES or (type(item) is list and not all(type(inner) in _JSON_TYPES for inner in item)):
            return False
    return True


def _dump(value: object) -> object:
    dump = value.model_dump  # type: ignore[attr-defined]
    try:
        return dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    except Exception:  # a field that JSON cannot hold, such as the parsed value of an answer
        return _as_plain(dump(by_alias=True, exclude_unset=True, warnings=False))


def _as_plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _as_plain(item) for key, item in value.items() if not _is_unknown_member(item)}
    if isinstance(value, (list, tuple)):
        return [_as_plain(item) for item in value if not _is_unknown_member(item)]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Enum):
        return value.value
    return _dump(value) if is_model_object(value) else value


def _is_unknown_member(value: object) -> bool:
    """Return whether boto3 wrote this for a block of a kind that it does not know. Its content is lost, and boto3 does not send it back."""
    return isinstance(value, Mapping) and len(value) == 1 and _UNKNOWN_MEMBER in value


def has_bytes(value: object) -> bool:
    """Return whether a value contains bytes, as values of boto3 and of Google's SDK do."""
    if isinstance(value, Mapping):
        return any(has_bytes(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_bytes(item) for item in value)
    return isinstance(value, (bytes, bytearray))


def camel_case_keys(value: object) -> object:
    """Return JSON data with its keys in camel case, as Gemini's API has them. The arguments and results of tools keep their keys."""
    if isinstance(value, list):
        return [camel_case_keys(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = ((_SNAKE.sub(lambda found: found[1].upper(), key), item) for key, item in value.items() if item is not None)
    return {key: item if key in _HOST_DATA and not _is_wrapped(key, item) else camel_case_keys(item) for key, item in renamed}


def _is_wrapped(key: str, item: object) -> bool:
    """Return whether this is the field `response` of a whole answer, which some services wrap in an object."""
    return key == "response" and isinstance(item, dict) and "candidates" in item


def with_bytes(value: object) -> object:
    """Return JSON data of Bedrock with bytes where the API's JSON has Base64 text."""
    if isinstance(value, list):
        return [with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _with_bytes(key, item) for key, item in value.items()}


def _with_bytes(key: str, item: object) -> object:
    if key in _HOST_DATA:
        return item
    if key in _BYTE_FIELDS and isinstance(item, str):
        try:
            return base64.b64decode(item.translate(_URL_SAFE), validate=True)
        except ValueError:
            return item.encode()
    return with_bytes(item)
