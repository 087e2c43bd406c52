"""Read the messages of clients, which are untrusted: strict JSON within bounds, without duplicate keys.

Of two equal keys, a proxy may judge one and a server may obey the other, so such a message is refused. So is one with half a surrogate
pair, because it would have to be changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from callgate.mcp._connection import Message
from callgate.mcp._messages import UnreadableMessage, read_message

__all__ = ["INVALID_REQUEST", "PARSE_ERROR", "AmbiguousMessage", "kind_of", "read_client_message"]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600


class AmbiguousMessage(UnreadableMessage):
    """A message with a duplicate key. `number` is its id; None if it has no valid one."""

    def __init__(self, why: str, number: object) -> None:
        super().__init__(why)
        self.number = number if type(number) in (int, str) else None


def read_client_message(data: bytes) -> Message:
    """Return the message in `data`, of which the caller has checked the size.

    Raises:
        UnreadableMessage: It is no JSON object, or is nested too deeply. The subclass `AmbiguousMessage` means that it has a duplicate key.
    """
    message = read_message(data, half_pairs=False)
    if data.count(b":") != _members(message):
        _check_keys(data, message.get("id"))
    return message


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


def _check_keys(data: bytes, number: object) -> None:
    def unique(pairs: list[tuple[str, object]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise AmbiguousMessage(f"it has the key {twice[:100]!r} twice", number)

    json.loads(data, object_pairs_hook=unique)
