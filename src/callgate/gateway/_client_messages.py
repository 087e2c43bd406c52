"""Read the messages of clients, which are untrusted: strict JSON within bounds, without duplicate keys.

Of two equal keys, a proxy may judge one and a server may obey the other, so such a message is refused. So is one with half a surrogate
pair, because it would have to be changed. What is refused is answered under its id, if it has one, so that its client need not wait.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from callgate._server_processes.json_lines import answered_ids
from callgate.mcp._connection import Message
from callgate.mcp._messages import (
    INVALID_REQUEST,
    BatchMessage,
    NoMessage,
    RpcError,
    UnreadableMessage,
    encoded,
    error_answer,
    read_message,
    response_fault,
)

__all__ = ["PARSE_ERROR", "RefusedMessage", "kind_of", "read_client_message", "read_request_id", "refusal"]

PARSE_ERROR = -32700
_HALF_PAIR = "a text in it has half of a surrogate pair, which is not a character"
_REQUEST_KEYS = frozenset({b'"method"'})
_SURROGATE = re.compile("[\ud800-\udfff]")


class RefusedMessage(Exception):
    """A message that is refused as a whole.

    Args:
        request_id: The id of the request that it is; None if it is none, or its id cannot be read.
        is_json: Whether it is valid JSON, but no message.
    """

    def __init__(self, why: str, request_id: object, *, is_json: bool = False) -> None:
        super().__init__(why)
        self.request_id = request_id
        self._is_json = is_json

    @property
    def code(self) -> int:
        """The JSON-RPC code of the answer."""
        return PARSE_ERROR if self.request_id is None and not self._is_json else INVALID_REQUEST


def read_client_message(data: bytes) -> Message:
    """Return the message in `data`, of which the caller has checked the size.

    For a response that is refused or not valid, return one that says so: the call that waits for it goes on.

    Raises:
        RefusedMessage: It is not a JSON object, is nested too deeply, has half a surrogate pair, or a duplicate key.
    """
    try:
        message = read_message(data, mends=False)
    except (NoMessage, BatchMessage) as error:
        raise RefusedMessage(str(error), None, is_json=True) from None
    except UnreadableMessage as error:
        return refusal(_read_loosely(data), _HALF_PAIR if _has_half_pair(data) else str(error))
    twice = _duplicate_key(data) if _may_have_a_key_twice(data, message) else None
    if twice is not None:
        return refusal(message, f"it has the key {twice[:100]!r} twice")
    if not kind_of(message) and _is_meant_as_response(message):
        return _refused_response(message, response_fault(message))
    return message


def refusal(message: Mapping[str, Any], why: str) -> Message:
    """Return a response that says why the client's response was refused.

    Args:
        message: What is known of a message that is refused.

    Raises:
        RefusedMessage: It is not a response that a call may wait for.
    """
    if _is_meant_as_response(message) and not message.keys().isdisjoint(("result", "error")):
        return _refused_response(message, why)
    raise RefusedMessage(why, read_request_id(message))


def _is_meant_as_response(message: Mapping[str, Any]) -> bool:
    """Return whether a message is meant as a response to a request of the gateway, whose ids are texts."""
    return isinstance(message.get("id"), str) and message.keys().isdisjoint(("method", "params"))


def _refused_response(message: Mapping[str, Any], why: str) -> Message:
    return error_answer(message["id"], RpcError(INVALID_REQUEST, f"The client's response was refused: {why}."))


def read_request_id(message: Mapping[str, Any]) -> int | str | None:
    """Return the id of what is meant as a request; None if it has no valid one."""
    found = message.get("id")
    return found if "method" in message and (type(found) is int or isinstance(found, str)) else None


def kind_of(message: Mapping[str, Any]) -> str:
    """Return `request`, `notification` or `response`; empty if the message is none of them."""
    method = message.get("method")
    if message.get("jsonrpc") != "2.0" or not (isinstance(method, str) or (method is None and "id" in message)):
        return ""
    if method is None:
        return "response" if ("result" in message) != ("error" in message) else ""
    if "id" not in message:
        return "notification"
    return "request" if type(message["id"]) in (int, str) else ""


def _has_half_pair(data: bytes) -> bool:
    """Return whether a text in valid JSON has half of a surrogate pair."""
    try:
        read_message(data)
        found = json.loads(data, parse_int=str, parse_float=str)
    except (UnreadableMessage, ValueError):
        return False
    return _SURROGATE.search(json.dumps(found, ensure_ascii=False)) is not None


def _read_loosely(data: bytes) -> Mapping[str, Any]:
    """Return what an unreadable message says beside what must not be read, such as `NaN`; of one that is nested too deeply, the id if it is
    a request. Empty if it says nothing."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {"method": "", "id": next(iter(answered_ids(data, _REQUEST_KEYS)), None)}
    return found if isinstance(found, dict) and not _SURROGATE.search(str(found.get("id"))) else {}


def _may_have_a_key_twice(data: bytes, message: Message) -> bool:
    """Return False if the bytes of a message certainly have no object with two equal keys.

    A colon follows each key, and others are within texts. Without escapes, texts are written again as they were, so that there are as many
    colons as before unless a key was dropped.
    """
    colons = data.count(b":")
    if b"\\" not in data:
        with suppress(OverflowError):  # an integer that cannot be written
            return encoded(message).count(b":") != colons
    return _members(message) != colons


def _members(root: object) -> int:
    count, level = 0, [root]
    while level:
        node = level.pop()
        if isinstance(node, dict):
            count += len(node)
            level += [item for item in node.values() if isinstance(item, (dict, list))]
        elif isinstance(node, list):
            level += [item for item in node if isinstance(item, (dict, list))]
    return count


def _duplicate_key(data: bytes) -> str | None:
    found: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            found.append(next(key for key in keys if keys.count(key) > 1))

    json.loads(data, object_pairs_hook=note)
    return found[0] if found else None
